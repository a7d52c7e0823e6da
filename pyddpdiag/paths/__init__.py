"""How a bucket is summed, as seen from Python: options, shared memory set up over the group, the way between hosts."""
