"""Every pair of ranks tries to connect, over sockets of our own; then a real Gloo group is formed."""
