"""Brings traces to places that are no folder of this machine, and from there."""
