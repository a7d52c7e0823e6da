"""Benchmarks: sweeps over DDP's settings, the race of network interfaces, result files and their comparison.

What reads and compares result files needs neither torch nor the native module; `bench.engine` measures and does.
"""
