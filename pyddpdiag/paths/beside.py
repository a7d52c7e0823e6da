"""Gloo groups that we make beside the training's: each lives as long as that does.

A hook may reduce by them after its recorder was closed; and Gloo's threads must end before the interpreter does, as
those of the training's own group do when it is destroyed.
"""

from __future__ import annotations

import weakref

import torch.distributed as dist

from pyddpdiag import _native

_held: weakref.WeakKeyDictionary[dist.ProcessGroup, list[_native.OwnBackend]] = weakref.WeakKeyDictionary()


def hold(group: dist.ProcessGroup, *beside: _native.OwnBackend) -> None:
    """Keeps them for as long as `group` lives; the core knows them weakly."""
    _held.setdefault(group, []).extend(beside)
