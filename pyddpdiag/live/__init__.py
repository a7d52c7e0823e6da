"""A run while it runs: what holds it up (`hang`), and how it goes (`watch`). Reads its files; touches no process."""
