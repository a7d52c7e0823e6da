"""Reads traces: layout, one rank's file, one run's folder, one clock, merged buckets."""
