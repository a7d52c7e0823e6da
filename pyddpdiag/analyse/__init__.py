"""Pure functions: a merged run in, plain data out. One file per question; nothing here prints."""
