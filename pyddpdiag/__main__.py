"""`python -m pyddpdiag`."""

from __future__ import annotations

import sys

from pyddpdiag.cli import main

if __name__ == "__main__":
    sys.exit(main())
