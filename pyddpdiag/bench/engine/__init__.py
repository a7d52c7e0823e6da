"""Measures: real ranks that live across all cases of a sweep."""
