"""From findings to a verdict: their costs, their order, the sentence on top, and why a run is not healthy."""
