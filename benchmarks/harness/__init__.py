"""What the benchmarks share: hooks to measure, and ranks that live across rounds."""
