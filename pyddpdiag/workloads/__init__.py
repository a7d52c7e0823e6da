"""Networks, data sets and samples for training and for benchmarks."""
