"""Renderers: a report in, text or JSON out. They decide how it looks and nothing else."""
