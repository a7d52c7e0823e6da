"""What the benchmarks share: interleaved rounds, intervals, and ranks that live across rounds."""
