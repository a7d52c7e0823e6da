"""Compares result files: what is comparable, ratios with their intervals, and how to show them."""
