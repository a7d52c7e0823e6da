"""What is known of a process before its first recorder: when it did what, and where it is."""
