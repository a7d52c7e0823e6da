"""Large buckets in shared memory lie in pages of 2 MiB, where the kernel has such."""

import ctypes
import mmap
import re
import sys
from pathlib import Path

import pytest
import torch
from support import added_up

from pyddpdiag import _native

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has such pages without a privilege"
)

LARGE = 2 << 20
COLLAPSE = 25
PR_SET_THP_DISABLE = 41


def _large_page_bytes(address: int) -> int:
    """How much of the mapping at `address` lies in large pages of shared memory."""
    mappings = re.split(
        r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE
    )
    for mapping in mappings[1:]:
        begin, end = (int(text, 16) for text in mapping.split(maxsplit=1)[0].split("-"))
        if begin <= address < end:
            return 1024 * int(re.findall(r"^ShmemPmdMapped: +(\d+) kB", mapping, re.MULTILINE)[0])
    raise AssertionError(f"nothing is mapped at {address:#x}")


def _kernel_gives_large_pages(pages: int) -> bool:
    """Tried with memory of the test's own, which need not be shared."""
    memory = mmap.mmap(-1, (pages + 1) * LARGE, flags=mmap.MAP_PRIVATE)
    memory.write(bytes((pages + 1) * LARGE))  # pages that are not there cannot be moved
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    begin = ctypes.c_void_p((address + LARGE - 1) // LARGE * LARGE)
    return ctypes.CDLL(None).madvise(begin, ctypes.c_size_t(pages * LARGE), COLLAPSE) == 0


def _moved(mebibytes: float) -> torch.Tensor:
    """A buffer of so many MiB that one rank alone has averaged in shared memory."""
    ranks = _native.SharedRanks(_native.SharedMember(), [None], ["rank 0"], 60_000)
    buffer = torch.full((int(mebibytes * 2**20) // 4,), 3.0)
    added_up.add_up(ranks, buffer, 0)
    assert bool((buffer == 3).all())
    return buffer


@pytest.mark.parametrize(("mebibytes", "pages"), [(1, 1), (2, 1), (3.1, 2), (25, 13)])
def test_large_buckets_begin_with_a_large_page(mebibytes: float, pages: int) -> None:
    # Where memory is in small pieces, the kernel may find that many pages only after it was asked.
    found = []
    for _ in range(5):
        buffer = _moved(mebibytes)
        # After the block's own header.
        assert buffer.data_ptr() % LARGE == 64
        found.append(_large_page_bytes(buffer.data_ptr()))
        if found[-1] == pages * LARGE:
            return
        del buffer
    assert max(found) <= pages * LARGE
    if not _kernel_gives_large_pages(pages):
        pytest.skip("this kernel gives no large pages, or not that many now")
    raise AssertionError(f"{found} bytes lie in large pages, and {pages * LARGE} could")


def test_small_buckets_take_no_large_page() -> None:
    assert _large_page_bytes(_moved(0.9).data_ptr()) == 0


def test_without_large_pages_all_goes_on() -> None:
    """As where a service manager or an administrator switches them off for a process."""
    system = ctypes.CDLL(None)
    assert system.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
    try:
        assert _large_page_bytes(_moved(25).data_ptr()) == 0
    finally:
        system.prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0)
