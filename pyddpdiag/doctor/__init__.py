"""Finds out before a run whether its ranks can form a Gloo group, and reads the error after it."""
