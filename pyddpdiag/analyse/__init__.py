"""Pure functions from a merged run to plain data. One file per question; nothing here prints."""
