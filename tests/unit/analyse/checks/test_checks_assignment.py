"""Advice about buckets where the parameters' sizes are known: DDP splits no parameter, whatever the cap."""

from collections.abc import Sequence
from math import prod
from pathlib import Path

import pytest
from support.laid_out import MB, write
from support.reported import number
from support.trace_writer import GROUP

from pyddpdiag.analyse.assignment import assignment
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import size
from pyddpdiag.trace.run import open_run

TABLE, HEAD, BIAS = (60_000, 256), (200, 256), (200,)


def train(
    folder: Path,
    modules: Sequence[Sequence[tuple[str, tuple[int, ...]]]],
    buckets: Sequence[Sequence[int]],
    *,
    cap_mb: float = 25.0,
    by: str = "",
    latency_ms: float = 0.0,
    ms_per_mb: float = 1.0,
    dtype: str = "float32",
) -> list[Finding]:
    """A run of modules with these parameters, in forward's order.

    `buckets` are the parameters in each, by index in their module: of the first one, unless there are as many modules
    as buckets.
    """
    owners = [place if len(modules) > 1 else 0 for place in range(len(buckets))]
    sizes = [
        sum(4 * prod(modules[owner][index][1]) for index in each)
        for owner, each in zip(owners, buckets, strict=True)
    ]
    sidecar: dict[str, object] = {
        "recorded_by": by,
        "modules": [
            {
                "index": index,
                "name": "Net",
                "group": f"{GROUP:016x}",
                "bucket_cap_mb": cap_mb,
                "parameters": [
                    {"name": name, "shape": list(shape), "dtype": dtype} for name, shape in parameters
                ],
            }
            for index, parameters in enumerate(modules)
        ],
        "buckets": [
            {
                "id": f"{100 + place:016x}",
                "module": owner,
                "index": place if len(modules) == 1 else 0,
                "parameters": list(each),
                "bytes": sizes[place],
                "dtype": dtype,
            }
            for place, (owner, each) in enumerate(zip(owners, buckets, strict=True))
        ],
    }
    return write(folder, sizes, latency_ms=latency_ms, ms_per_mb=ms_per_mb, sidecar=sidecar)


@pytest.mark.parametrize("cap_mb", [25.0, 15.0])
def test_no_cap_is_advised_where_one_parameter_is_nearly_all(tmp_path: Path, cap_mb: float) -> None:
    """The head's gradients come first, and are too few to fill a bucket: the embedding always joins them."""
    (found,) = train(
        tmp_path,
        [[("emb.weight", TABLE), ("head.weight", HEAD), ("head.bias", BIAS)]],
        [[2, 1, 0]],
        cap_mb=cap_mb,
    )
    seen = (found.kind, found.parameter, found.evidence["bucket_cap_mb"])
    assert seen == ("single_bucket", "emb.weight", None)
    assert f"parameter 'emb.weight' alone is {size(4 * prod(TABLE))} of 61.6 MB" in found.message
    assert "sparse=True" in found.advice and "16 bits" in found.advice and "bucket_cap_mb" not in found.advice


def test_where_it_costs_less_no_smaller_cap_is_advised_either(tmp_path: Path) -> None:
    (found,) = train(tmp_path, [[("emb.weight", TABLE), ("head.weight", HEAD)]], [[1, 0]], ms_per_mb=0.12)
    assert found.kind == "exposed_communication" and "bucket_cap_mb" not in found.advice


@pytest.mark.parametrize(
    ("name", "shape", "by", "sparse"),
    [
        ("0.weight", TABLE, "", True),
        ("fc.weight", TABLE, "", False),
        ("emb.weight", (15_360_000,), "", False),
        ("emb.weight", TABLE, "train", False),
    ],
)
def test_only_a_table_can_be_sparse(
    tmp_path: Path, name: str, shape: tuple[int, ...], by: str, sparse: bool
) -> None:
    (found,) = train(tmp_path, [[(name, shape), ("head.weight", HEAD)]], [[1, 0]], by=by)
    assert found.kind == "single_bucket" and found.parameter == name
    assert ("sparse=True" in found.advice) == sparse == ("later in forward" not in found.advice)


def test_a_large_parameter_whose_gradient_comes_first_leaves_early(tmp_path: Path) -> None:
    """Here a cap helps: it closes the bucket behind that parameter."""
    (found,) = train(
        tmp_path,
        [[("body.weight", (1000, 1000)), ("body.bias", (1000,)), ("head.weight", (8000, 1000))]],
        [[2, 1, 0]],
    )
    assert found.kind == "single_bucket" and "2 buckets" in found.message
    assert (
        found.advice == f"DistributedDataParallel(model, bucket_cap_mb={found.evidence['bucket_cap_mb']:g})"
    )


def test_a_model_of_equal_layers_is_split_by_the_advised_cap(tmp_path: Path) -> None:
    layers = [(f"{index}.weight", (1250, 1000)) for index in range(4)]
    (found,) = train(tmp_path, [layers], [[3, 2, 1, 0]])
    assert found.kind == "single_bucket" and "4 buckets" in found.message
    view = RunView(open_run(tmp_path))
    known = assignment(view.names, view.buckets)
    assert known is not None and known.buckets(number(found, "bucket_cap_mb")) == 4


def test_buckets_that_were_never_rebuilt_are_filled_from_the_first_layer_on(tmp_path: Path) -> None:
    """As with find_unused_parameters=True."""
    layers = [(f"{index}.weight", (1000, rows)) for index, rows in enumerate((1000, 200, 200))]
    train(tmp_path, [layers], [[0, 1, 2]])
    view = RunView(open_run(tmp_path))
    known = assignment(view.names, view.buckets)
    assert known is not None
    # The first layer fills one alone, which is the last to be sent.
    assert (known.buckets(3.0), known.last_bytes(3.0)) == (2, 4 * MB)


def test_a_table_in_the_last_of_several_buckets(tmp_path: Path) -> None:
    body = [(f"{index}.weight", (500, 500)) for index in range(3)]
    (found,) = train(
        tmp_path, [[("emb.weight", (20_000, 256)), ("norm.weight", BIAS), *body]], [[4], [3], [2], [1, 0]]
    )
    assert found.kind == "large_last_bucket" and found.parameter == "emb.weight"
    assert "parameter 'emb.weight' alone is 20.5 MB of 20.5 MB" in found.message
    assert "sparse=True" in found.advice and "bucket_cap_mb" not in found.advice
    # Also where less than a tenth of a step would be saved: no calculation of another layout may be wrong.
    parameters = [("emb.weight", (6_000, 256)), ("norm.weight", BIAS), *body]
    (found,) = train(tmp_path / "less", [parameters], [[4], [3], [2], [1, 0]])
    assert found.kind == "large_last_bucket" and found.evidence["saved_ms"] == pytest.approx(2.4, rel=0.1)


def test_a_large_last_bucket_of_layers_that_a_cap_divides(tmp_path: Path) -> None:
    sizes = (1250, 1250, 1250, 1250, 250, 250)
    layers = [(f"{index}.weight", (1000, columns)) for index, columns in enumerate(sizes)]
    (found,) = train(tmp_path, [layers], [[5], [4], [3, 2, 1, 0]])
    assert found.kind == "large_last_bucket" and "bucket_cap_mb=" in found.advice


def test_small_buckets_of_many_modules_are_joined_by_no_cap(tmp_path: Path) -> None:
    rows = [20 * (1 + place % 5) for place in range(40)]
    layers = [("weight", (each, 250)) for each in rows]
    apart = train(tmp_path / "apart", [[layer] for layer in layers], [[0]] * 40, latency_ms=2.0)
    assert [found.kind for found in apart] == ["exposed_communication"]
    one = [(f"{index}.weight", shape) for index, (_, shape) in enumerate(layers)]
    (found,) = train(tmp_path / "one", [one], [[39 - place] for place in range(40)], latency_ms=2.0)
    assert found.kind == "small_buckets" and "bucket_cap_mb=" in found.advice


@pytest.mark.parametrize("dtype", ["float16", "other"])
def test_sizes_that_do_not_add_up_are_not_known(tmp_path: Path, dtype: str) -> None:
    """As of sparse gradients, and of types that nobody knows: then the parameters' number must do."""
    (found,) = train(tmp_path, [[("emb.weight", TABLE), ("head.weight", HEAD)]], [[1, 0]], dtype=dtype)
    assert found.kind == "single_bucket" and "bucket_cap_mb=" in found.advice
    assert "one parameter is most of the model" in found.change_mind
