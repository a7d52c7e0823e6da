"""Whether a module's pass is no pass: somebody makes a graph of it."""

from __future__ import annotations

import torch
from torch.compiler import is_compiling

_graph = torch._C._get_tracing_state


def is_traced() -> bool:
    """Of torch.compile and torch.export, or of torch.jit.trace, for which a tensor's size is a tensor, too."""
    return is_compiling() or _graph() is not None
