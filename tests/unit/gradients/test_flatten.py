"""Flattening against torch: its casts' bits, the same statistics, clear errors, and torch's own threads."""

from __future__ import annotations

import math
import multiprocessing
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.commands import python

import pyddpdiag
from pyddpdiag import _native
from pyddpdiag.errors import FlattenError

TYPES = {
    torch.float32: (np.float32, np.uint32, torch.int32),
    torch.float64: (np.float64, np.uint64, torch.int64),
    torch.float16: (np.float16, np.uint16, torch.int16),
    torch.bfloat16: (np.uint16, np.uint16, torch.int16),
}
U = 2.0**-53

types = st.sampled_from(list(TYPES))
scales = st.one_of(st.just(1.0), st.sampled_from([0.5, 1 / 3, -2.0, 1e-30, 1e30]))


@st.composite
def any_tensor(draw: st.DrawFn, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Any bits, so with subnormals, infinities and NaN payloads; any shape; sometimes strided or transposed."""
    dtype = dtype or draw(types)
    _, unsigned, signed = TYPES[dtype]
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=70))
    special = [0, 1, 2 ** (8 * np.dtype(unsigned).itemsize - 1)]
    elements = st.one_of(st.sampled_from(special), st.integers(0, 2 ** (8 * np.dtype(unsigned).itemsize) - 1))
    bits = draw(hnp.arrays(unsigned, shape, elements=elements, fill=elements))
    tensor = torch.from_numpy(np.atleast_1d(bits).view(f"i{bits.dtype.itemsize}").copy()).view(dtype)
    tensor = tensor.reshape(bits.shape)
    assert tensor.view(signed).dtype is signed
    change = draw(st.sampled_from(["none", "none", "transpose", "stride", "flip-back", "expand"]))
    if change == "transpose" and tensor.dim() > 1:
        tensor = tensor.transpose(0, -1)
    elif change == "stride" and tensor.dim() > 0:
        tensor = tensor[::2]
    elif change == "expand" and tensor.dim() > 0:
        tensor = tensor[:1].expand(3, *tensor.shape[1:]) if tensor.shape[0] else tensor
    return tensor


def expected(tensor: torch.Tensor, scale: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """What torch makes of a tensor: the scaled values, and those cast."""
    flat = tensor.contiguous().reshape(-1)
    values = flat if flat.dtype is torch.float64 else flat.float()
    if scale == 1.0:
        return values, flat.to(dtype)
    values = values.mul(scale)
    # torch's own f64 to 16 bits goes by way of f32, too.
    return values, values.to(dtype)


def assert_same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    assert got.dtype is wanted.dtype
    assert torch.equal(got.isnan(), wanted.isnan())
    signed = TYPES[got.dtype][2]
    rest = ~got.isnan()
    assert torch.equal(got.view(signed)[rest], wanted.view(signed)[rest])


def check_statistics(stats: Any, index: int, values: torch.Tensor) -> None:
    wide = values.double()
    bad = (~values.isfinite()).nonzero().flatten()
    assert stats.non_finite[index] == len(bad)
    assert stats.first_non_finite[index] == (int(bad[0]) if len(bad) else -1)
    biggest = float(wide.abs().max()) if len(wide) else 0.0
    squares = stats.sum_squares[index]
    if math.isnan(biggest):
        assert math.isnan(squares) and math.isnan(stats.absolute_maximum[index])
        return
    assert stats.absolute_maximum[index] == biggest
    exact = math.fsum(x * x for x in wide.tolist()) if math.isfinite(biggest) and biggest < 1e150 else None
    if exact is not None:
        assert abs(squares - exact) <= (len(wide) / 16 + 8) * U * exact + 1e-300
    elif not math.isfinite(biggest):
        assert squares == math.inf


@settings(max_examples=60, deadline=None)
@given(st.lists(any_tensor(), max_size=5), types, scales)
def test_the_same_as_torch(tensors: list[torch.Tensor], dtype: torch.dtype, scale: float) -> None:
    flat = pyddpdiag.flatten(tensors, scale=scale, dtype=dtype)
    assert flat.buffer.dtype is dtype
    offset = 0
    for i, tensor in enumerate(tensors):
        values, cast = expected(tensor, scale, dtype)
        assert_same(flat.buffer[offset : offset + tensor.numel()], cast)
        check_statistics(flat.stats, i, values)
        offset += tensor.numel()
    assert offset == flat.buffer.numel()


@settings(max_examples=50, deadline=None)
@given(st.data(), types, scales)
def test_back_again(data: st.DataObject, dtype: torch.dtype, scale: float) -> None:
    tensors = [t.clone() for t in data.draw(st.lists(any_tensor(), max_size=4))]
    count = sum(t.numel() for t in tensors)
    buffer = torch.linspace(-3, 3, max(count, 1)).to(dtype)[:count]
    wanted = []
    offset = 0
    for tensor in tensors:
        _, cast = expected(buffer[offset : offset + tensor.numel()], scale, tensor.dtype)
        wanted.append(cast.view(tensor.shape))
        offset += tensor.numel()
    pyddpdiag.unflatten_(buffer, tensors, scale=scale)
    for tensor, right in zip(tensors, wanted, strict=True):
        assert_same(tensor.contiguous().reshape(-1), right.reshape(-1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_nan_bits_of_f32_are_those_of_torch(dtype: torch.dtype) -> None:
    bits = np.arange(0x7F800001, 0x80000000, 997, dtype=np.uint32)
    source = torch.from_numpy(np.concatenate([bits, bits | 0x80000000]).view(np.int32)).view(torch.float32)
    ours = pyddpdiag.flatten([source], dtype=dtype).buffer
    assert ours.isnan().all()
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        assert torch.equal(ours.view(torch.int16), source.to(dtype).view(torch.int16))


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("dtype", list(TYPES))
def test_large_tensors_on_any_number_of_threads(threads: int, dtype: torch.dtype) -> None:
    """Past the size for streaming stores, over several parts, and at addresses that are not aligned."""
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(n, generator=generator) for n in (3_000_001, 5, 0, 700_003, 1_500_000)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        flat = pyddpdiag.flatten(tensors, scale=1 / 3, dtype=dtype)
        whole = torch.cat(tensors).mul(1 / 3)
        assert torch.equal(flat.buffer, whole.to(dtype))
        torch.set_num_threads(1)
        alone = pyddpdiag.flatten(tensors, scale=1 / 3, dtype=dtype)
        assert np.array_equal(alone.stats.sum_squares, flat.stats.sum_squares)
        norms = [float(t.mul(1 / 3).double().norm()) for t in tensors]
        assert np.allclose(np.sqrt(flat.stats.sum_squares), norms, rtol=1e-12)
        torch.set_num_threads(threads)
        back = [torch.empty_like(t) for t in tensors]
        pyddpdiag.unflatten_(flat.buffer, back)
        for one, tensor in zip(back, tensors, strict=True):
            assert torch.equal(one, tensor.mul(1 / 3).to(dtype).float())
    finally:
        torch.set_num_threads(before)


@settings(max_examples=30, deadline=None)
@given(st.lists(any_tensor(), max_size=4), types, scales)
def test_the_way_of_other_devices_gives_the_same(
    tensors: list[torch.Tensor], dtype: torch.dtype, scale: float
) -> None:
    buffer, sizes, places = _native.flatten(tensors, None, scale, dtype, 2**30)
    by_aten, aten_sizes, aten_places = _native.flatten(tensors, None, scale, dtype, 2**30, True)
    assert_same(buffer, by_aten)
    assert torch.equal(places, aten_places)
    assert torch.equal(sizes[1].nan_to_num(-1), aten_sizes[1].nan_to_num(-1))
    assert torch.allclose(sizes[0], aten_sizes[0], rtol=1e-12, equal_nan=True)
    targets = [
        [torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors] for _ in range(2)
    ]
    _native.unflatten_(buffer, targets[0], scale, 2**30)
    _native.unflatten_(buffer, targets[1], scale, 2**30, True)
    for native, aten in zip(*targets, strict=True):
        assert_same(native.reshape(-1), aten.reshape(-1))


def test_into_a_given_buffer() -> None:
    tensors = [torch.ones(3, requires_grad=True), torch.tensor(2.0), torch.empty(0)]
    out = torch.full((10,), 7.0)
    flat = pyddpdiag.flatten(tensors, out=out)
    assert flat.buffer.data_ptr() == out.data_ptr()
    assert out.tolist() == [1, 1, 1, 2, 7, 7, 7, 7, 7, 7]
    assert not flat.buffer.requires_grad
    assert flat.stats.sum_squares.tolist() == [3, 4, 0]
    assert flat.stats.norm == math.sqrt(7)
    pyddpdiag.unflatten_(flat.buffer, tensors, scale=2)
    assert tensors[0].tolist() == [2, 2, 2]


def test_nothing_at_all() -> None:
    flat = pyddpdiag.flatten([])
    assert flat.buffer.numel() == 0
    assert len(flat.stats.sum_squares) == 0
    pyddpdiag.unflatten_(flat.buffer, [])


def test_autograd_sees_that_a_saved_tensor_was_overwritten() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    loss = (y * y).sum()
    pyddpdiag.unflatten_(torch.zeros(3), [y.detach()])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def overlapping() -> list[torch.Tensor]:
    base = torch.ones(10)
    return [base[:6], base[5:]]


BASE = torch.zeros(20)
REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "sparse": ([torch.eye(3).to_sparse()], {}, "tensor 0 is sparse"),
    "complex": ([torch.ones(2), torch.ones(2, dtype=torch.complex64)], {}, "tensor 1 is complex"),
    "integers": ([torch.ones(2, dtype=torch.int64)], {}, "tensor 0 is of type Long"),
    "meta": ([torch.ones(2, device="meta")], {}, "no memory of its own"),
    "mixed types": ([torch.ones(2), torch.ones(2).double()], {}, "different types: Float and Double"),
    "mixed devices": ([torch.ones(2), torch.ones(2, device="meta")], {}, "no memory|is on"),
    "out too small": ([torch.ones(5)], {"out": torch.empty(4)}, "out has 4 elements, 5 are needed"),
    "out has two dimensions": ([torch.ones(4)], {"out": torch.empty(2, 2)}, "one dimension"),
    "out has gaps": ([torch.ones(4)], {"out": torch.empty(8)[::2]}, "no gaps"),
    "out of another type": (
        [torch.ones(4)],
        {"out": torch.empty(4), "dtype": torch.float64},
        "but dtype says",
    ),
    "out of integers": ([torch.ones(4)], {"out": torch.empty(4, dtype=torch.int32)}, "out is of type Int"),
    "out overlaps": ([BASE[3:8]], {"out": BASE[:5]}, "shares memory with tensor 0"),
    "buffer of integers": ([torch.ones(4)], {"dtype": torch.int32}, "dtype must be float32"),
    "scale is NaN": ([torch.ones(4)], {"scale": math.nan}, "scale must be a finite number"),
    "no tensors but one": (torch.ones(4), {}, "several tensors"),
    "None": ([torch.ones(4), None], {}, "tensor 1 is NoneType"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_reason(case: str) -> None:
    tensors, options, message = REFUSED[case]
    with pytest.raises(FlattenError, match=message):
        pyddpdiag.flatten(tensors, **options)


def test_unflatten_refuses() -> None:
    with pytest.raises(FlattenError, match="buffer has 5 elements, but the tensors have 4"):
        pyddpdiag.unflatten_(torch.ones(5), [torch.ones(4)])
    with pytest.raises(FlattenError, match="buffer has 3 elements, 4 are needed"):
        pyddpdiag.unflatten_(torch.ones(3), [torch.ones(4)])
    with pytest.raises(FlattenError, match="two of the tensors share memory"):
        pyddpdiag.unflatten_(torch.ones(11), overlapping())
    with pytest.raises(FlattenError, match="shares memory"):
        pyddpdiag.unflatten_(BASE[:5], [BASE[4:9]])


def test_a_refusal_writes_nothing() -> None:
    out = torch.zeros(6)
    with pytest.raises(FlattenError):
        pyddpdiag.flatten([torch.ones(3), torch.ones(3, dtype=torch.int64)], out=out)
    assert not out.any()


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
    done = python("-c", COUNT, str(threads))
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
