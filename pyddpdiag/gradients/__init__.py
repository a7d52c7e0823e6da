"""Gradients without DDP: flattening, buckets, and data parallelism by `GradientReducer`."""
