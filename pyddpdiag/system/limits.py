"""What the system lets this process do."""

from __future__ import annotations

import math


def largest_file() -> float:
    """How many bytes a file may have that this process writes; infinity: nothing but the disk says so."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return math.inf
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit
