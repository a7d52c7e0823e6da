import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyddpdiag.model.ending import End, Stay
from pyddpdiag.model.sidecar import Group, Layout, Module, Sidecar, from_json, to_json
from pyddpdiag.trace.sidecar import read_sidecar

FULL = {
    "schema_version": 1,
    "host": "node-a",
    "torch": "2.13.0+cpu",
    "groups": [{"id": "00000000000000ff", "name": "0", "backend": "gloo", "ranks": [0, 1]}],
    "modules": [
        {
            "index": 0,
            "name": "ConvNet",
            "group": "00000000000000ff",
            "bucket_cap_mb": 25.0,
            "parameters": [{"name": "a"}, {"name": "b"}],
        }
    ],
    "buckets": [{"id": "0000000000000abc", "module": 0, "parameters": [1, 0], "dtype": "float32"}],
    "end": {"error": "KeyError", "where": "train.py:12", "at_ns": 5},
    "seen": {"where": "train.py:31", "since_ns": 4, "until_ns": 7},
    "gpu": {"samples": 3, "utilisation_percent": 35.0, "memory_used_bytes": 2, "memory_total_bytes": 8},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def read(tmp_path: Path, text: str | bytes) -> tuple[Sidecar, tuple[str, ...]]:
    path = tmp_path / "rank_0.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_sidecar(path)


def test_everything_is_read(tmp_path: Path) -> None:
    sidecar, warnings = read(tmp_path, json.dumps(FULL))
    assert warnings == ()
    assert (sidecar.host, sidecar.torch) == ("node-a", "2.13.0+cpu")
    assert sidecar.groups[0xFF].ranks == (0, 1)
    assert sidecar.modules[0].parameters == ("a", "b")
    assert sidecar.layouts[0xABC].parameters == (1, 0)


def test_missing_sidecar_is_a_warning(tmp_path: Path) -> None:
    sidecar, warnings = read_sidecar(tmp_path / "rank_0.json")
    assert sidecar == Sidecar()
    assert len(warnings) == 1 and "missing" in warnings[0]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "nul", b"\xff\xfe\x00", "[" * 100_000, '{"a": ' + "9" * 10_000 + "}"],
    ids=["empty", "cut", "list", "word", "bytes", "deep", "long number"],
)
def test_broken_sidecar_is_a_warning(tmp_path: Path, text: str | bytes) -> None:
    sidecar, warnings = read(tmp_path, text)
    assert sidecar == Sidecar()
    assert len(warnings) == 1


def test_other_version_is_reported_and_read_as_far_as_it_goes(tmp_path: Path) -> None:
    sidecar, warnings = read(tmp_path, json.dumps({**FULL, "schema_version": 9}))
    assert sidecar.host == "node-a"
    assert "schema_version is 9" in warnings[0]


def test_entries_that_do_not_fit_are_left_out_and_counted(tmp_path: Path) -> None:
    odd = {**FULL, "buckets": [*FULL["buckets"], {"id": "xyz"}, 7], "groups": {"id": 1}}
    sidecar, warnings = read(tmp_path, json.dumps(odd))
    assert list(sidecar.layouts) == [0xABC] and sidecar.groups == {}
    assert "3 entries" in warnings[0]


def test_names_cannot_drive_a_terminal(tmp_path: Path) -> None:
    sidecar, _ = read(tmp_path, json.dumps({**FULL, "host": "a\x1b[31mb\u202ec\ud800"}))
    assert sidecar.host.isprintable()
    assert sidecar.host.startswith("a\ufffd[31mb")
    sidecar.host.encode("utf-8")


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries({}, optional={key: JSON for key in FULL}) | JSON)
def test_any_json_is_survived(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    sidecar, _ = read(tmp_path_factory.mktemp("sidecar"), json.dumps(content))
    assert isinstance(sidecar, Sidecar)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_survived(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    assert isinstance(read(tmp_path_factory.mktemp("sidecar"), content)[0], Sidecar)


NAMES = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=20)
IDS = st.integers(1, 2**64 - 1)
COUNTS = st.integers(0, 2**31)
SIDECARS = st.builds(
    Sidecar,
    run_id=NAMES,
    rank=COUNTS,
    world_size=COUNTS,
    host=NAMES,
    pid=COUNTS,
    process_started_s=st.none() | st.floats(0, 2e9),
    process_namespace=st.none() | NAMES,
    platform=NAMES,
    python=NAMES,
    torch=NAMES,
    pyddpdiag=NAMES,
    torch_threads=COUNTS,
    build_config=st.dictionaries(NAMES, NAMES | COUNTS, max_size=4),
    environment=st.dictionaries(NAMES, NAMES, max_size=4),
    clock=st.dictionaries(NAMES, NAMES | COUNTS, max_size=4),
    groups=st.dictionaries(
        IDS, st.builds(Group, NAMES, NAMES, st.lists(COUNTS, max_size=4).map(tuple)), max_size=3
    ),
    modules=st.dictionaries(
        COUNTS,
        st.builds(
            lambda name, group, cap, parameters: Module(name, group, cap, *zip(*parameters, strict=True)),
            NAMES,
            IDS,
            st.none() | st.floats(0, 1e6),
            st.lists(
                st.tuples(NAMES, st.lists(COUNTS, max_size=4).map(tuple), NAMES), min_size=1, max_size=3
            ),
        ),
        max_size=3,
    ),
    layouts=st.dictionaries(
        IDS,
        st.builds(Layout, COUNTS, st.lists(COUNTS, max_size=4).map(tuple), NAMES, COUNTS, COUNTS),
        max_size=3,
    ),
    closed=st.booleans(),
    end=st.none() | st.builds(End, NAMES, NAMES, NAMES, at_ns=COUNTS),
    seen=st.none()
    | st.builds(lambda where, since, more: Stay(where, since + 1, since + 1 + more), NAMES, COUNTS, COUNTS),
)


@given(SIDECARS)
def test_what_is_written_is_what_is_read(sidecar: Sidecar) -> None:
    text = json.dumps(to_json(sidecar))
    assert from_json(json.loads(text)) == (sidecar, ())


def _shape_of(value: object) -> object:
    """The keys of a JSON value, with one entry of each list."""
    if isinstance(value, dict):
        return {key: _shape_of(inner) for key, inner in value.items()}
    return [_shape_of(value[0])] if isinstance(value, list) and value else type(value).__name__


def test_the_documented_example_is_the_schema() -> None:
    example = json.loads(
        (Path(__file__).parents[3] / "docs/examples/rank_0.json").read_text(encoding="utf-8")
    )
    sidecar, warnings = from_json(example)
    assert warnings == ()
    # Everything that stands there is read, and nothing that is written is missing there.
    assert _shape_of(to_json(sidecar)) == _shape_of(example)
    assert set(to_json(sidecar)) >= {"pyddpdiag", "process_started_s", "build_config", "environment"}
