"""Renderers turn a report into text or JSON. They decide only how it looks."""
