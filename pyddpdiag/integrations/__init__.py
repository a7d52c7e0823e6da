"""The recorder in programs of other people: their frameworks' callbacks, and scripts that were not changed."""
