"""What the benchmarks share: rows of measured rounds, what to measure, and ranks that live across rounds."""
