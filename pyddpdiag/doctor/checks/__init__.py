"""The checks of this machine, one concern per file. None of them needs torch, root, or another rank."""
