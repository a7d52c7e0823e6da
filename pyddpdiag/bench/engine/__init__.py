"""Measures on real ranks, which live through all cases of a sweep."""
