from __future__ import annotations

import sys
from pathlib import Path

# tests/ itself, so that `support` is found however pytest was started.
sys.path.insert(0, str(Path(__file__).parents[1]))
