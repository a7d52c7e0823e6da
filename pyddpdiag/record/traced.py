"""Whether a module's pass is no pass: somebody makes a graph of it."""

from __future__ import annotations

import torch


def is_traced() -> bool:
    """Of torch.compile and torch.export, or of torch.jit.trace, for which a tensor's size is a tensor, too."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
