"""What nearly every process of a test imports, once in the fork server (forks.py).

torch._dynamo is for DDP, whose constructor imports it. The one thread that these imports start is OpenBLAS's, which
takes care of forks itself. Nothing of what is here is looked through again by each fork's garbage collector.
"""

import gc

import pytest
import torch._dynamo
import torch.distributed

import pyddpdiag.record.recorder
import support.hooked

gc.collect()
gc.freeze()

__all__ = ["pyddpdiag", "pytest", "support", "torch"]
