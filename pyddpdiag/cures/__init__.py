"""What can be applied to a run without a change to its script: to DDP, to how buckets are summed, to processes."""
