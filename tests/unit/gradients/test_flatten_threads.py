"""The threads that flatten: torch's own, as many as it was set to, and no others."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pyddpdiag
from pyddpdiag import _native

COUNT = """
import sys, psutil, torch, pyddpdiag
from pyddpdiag import _native

torch.set_num_threads(int(sys.argv[1]))
# Left as it is: filling it would start threads.
tensor = torch.empty(1 << 22)
counts = [psutil.Process().num_threads()]
pyddpdiag.flatten([tensor], out=torch.empty_like(tensor), scale=0.5)
counts.append(psutil.Process().num_threads())
tensor.zero_()
counts.append(psutil.Process().num_threads())
print(*counts)
"""


def test_the_module_knows_no_openmp() -> None:
    """A second runtime beside torch's would have threads that `torch.set_num_threads` does not govern."""
    binary = Path(_native.__file__).read_bytes()
    # It uses torch: its imports are there to be read.
    assert b"TensorIterator" in binary
    assert not re.findall(rb"GOMP_\w+|\bomp_get_\w+|__kmpc_\w+|_vcomp_\w+|vcomp140|lib[gi]?omp", binary)


@pytest.mark.skipif(sys.platform == "win32", reason="Intel's OpenMP keeps threads of its own besides")
@pytest.mark.parametrize("threads", [1, 3])
def test_as_many_threads_as_torch_uses_and_they_are_torchs(threads: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(threads)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    before, flattened, torch_too = map(int, done.stdout.split())
    assert flattened == before + threads - 1
    # torch's own work finds its threads there already.
    assert torch_too == flattened


class Flattening(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return pyddpdiag.flatten([torch.full((1 << 20,), float(index))], scale=2.0).buffer[-1]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_loader_worker_flattens_although_its_parent_had_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        pyddpdiag.flatten([torch.ones(1 << 20)])
        loader = torch.utils.data.DataLoader(
            Flattening(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60
        )
        assert [value.item() for value in loader] == [0.0, 2.0, 4.0, 6.0]
    finally:
        torch.set_num_threads(before)
