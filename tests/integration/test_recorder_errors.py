"""Wrong uses get the right error, with what failed, the rank, and what to do next."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.commands import python
from support.hooked import WAYS, backward, register, train
from support.models import branches
from support.ranks import run_ranks
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag import errors
from pyddpdiag.trace.run import open_run

LINUX = sys.platform == "linux"


@dataclass(frozen=True)
class Caught:
    """An error that was raised in another process."""

    kinds: tuple[str, ...]
    text: str
    hint: str


Answers = tuple[Path, list[dict[str, Caught | None]]]


def caught(act: Callable[[], object]) -> Caught | None:
    try:
        act()
    except Exception as error:
        return Caught(
            tuple(kind.__name__ for kind in type(error).__mro__), str(error), getattr(error, "hint", "")
        )
    return None


def _wrapped(bucket_cap_mb: float = 25) -> DistributedDataParallel:
    return DistributedDataParallel(branches(torch.float32), bucket_cap_mb=bucket_cap_mb)


def _job(rank: int, _: int, folder: str, tiny_disk: str) -> dict[str, Caught | None]:
    root = Path(folder)
    found: dict[str, Caught | None] = {}
    with pyddpdiag.Recorder(root / "closed") as recorder:
        trained = {way: _wrapped() for way in WAYS}
        for way in WAYS:
            register(recorder, trained[way], way)
            backward(trained[way], rank, 0)
    found["closed attach"] = caught(lambda: recorder.attach(_wrapped()))
    found["closed steps"] = caught(lambda: recorder.steps([1]))
    found["closed resume"] = caught(recorder.resume)
    for way in WAYS:
        found[f"closed {way}"] = caught(lambda way=way: backward(trained[way], rank, 1))  # type: ignore[misc]
    recorder.close()

    with pyddpdiag.Recorder(root / "hooks") as recorder:
        ddp = _wrapped()
        recorder.attach(ddp)
        found["attach twice"] = caught(lambda: recorder.attach(ddp))
        with pyddpdiag.Recorder(root / "another") as another:
            found["attach to two recorders"] = caught(lambda: another.attach(ddp))
        found["register after attach"] = caught(
            lambda: ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)
        )
        hooked = _wrapped()
        hooked.register_comm_hook(None, allreduce_hook)
        found["attach after register"] = caught(lambda: recorder.attach(hooked))
        builtin = _wrapped()
        builtin._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        found["attach after builtin"] = caught(lambda: recorder.attach(builtin))
        found["not DDP"] = caught(lambda: recorder.attach(branches(torch.float32)))  # type: ignore[arg-type]
        found["hook's mode"] = caught(lambda: recorder.hook(shared_memory="yes"))  # type: ignore[arg-type]
        parameters = list(branches(torch.float32).parameters())
        found["reducer's mode"] = caught(
            lambda: pyddpdiag.GradientReducer(parameters, shared_memory="yes")  # type: ignore[arg-type]
        )
        # The errors must have left the recorder and the module usable.
        train(ddp, rank, 2)

    for name, state in (("text", "recorder"), ("list", []), ("class", pyddpdiag.Recorder)):
        wrong = _wrapped()
        wrong.register_comm_hook(state, pyddpdiag.timed_allreduce)
        found[f"wrong state {name}"] = caught(lambda wrong=wrong: backward(wrong, rank, 0))  # type: ignore[misc]

    file = root / f"file{rank}"
    file.write_text("x")
    for name, place in (
        ("below a file", file / "run"),
        ("a file", file),
        ("below /proc", Path("/proc/nowhere/run")),
    ):
        found[name] = caught(lambda place=place: pyddpdiag.Recorder(place))  # type: ignore[misc]
    for name, place in (("a NUL", Path("run\0")), ("no text", Path("run\udcff"))):
        found[name] = caught(lambda place=place: pyddpdiag.Recorder(place))  # type: ignore[misc]
    (root / "taken" / f"rank_{rank}.json").mkdir(parents=True)
    found["sidecar is a folder"] = caught(lambda: pyddpdiag.Recorder(root / "taken"))

    with pyddpdiag.Recorder(root / "exists", capacity_mb=1):
        pass
    with contextlib.chdir(root / "exists"):
        found["exists"] = caught(lambda: pyddpdiag.Recorder("."))
    with pyddpdiag.Recorder(root / "exists", capacity_mb=2, overwrite=True) as recorder:
        found["overwrite"] = caught(lambda: train(_attached(recorder), rank, 1))

    for name, options in (
        ("capacity too small", {"capacity_mb": 0.06}),
        ("capacity too large", {"capacity_mb": 65537}),
        ("capacity nan", {"capacity_mb": float("nan")}),
        ("interval", {"parameter_interval": -1}),
        ("interval too large", {"parameter_interval": 2**32}),
        ("statistics interval", {"statistics_interval": -1}),
        ("sentinel", {"sentinel": "loud"}),
        ("sentinel interval", {"sentinel": "warn", "sentinel_interval": 0}),
    ):
        found[name] = caught(lambda options=options: pyddpdiag.Recorder(root / "range", **options))  # type: ignore[misc]
    if tiny_disk:
        found["disk full"] = caught(lambda: pyddpdiag.Recorder(tiny_disk, capacity_mb=2))
    if LINUX:
        found["file limit"] = caught(lambda: _with_file_limit(root / "limited"))
    found["folder lost"] = caught(lambda: _lose_the_folder(root / "lost", rank))
    return found


def _attached(recorder: pyddpdiag.Recorder) -> DistributedDataParallel:
    ddp = _wrapped()
    recorder.attach(ddp)
    return ddp


def _with_file_limit(folder: Path) -> None:
    """The limit of a file's size, which the system reports much as it does a full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As a script may set it, whose process then ends if it tries.
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        pyddpdiag.Recorder(folder, capacity_mb=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def _lose_the_folder(folder: Path, rank: int) -> None:
    """Somebody removes the run's folder in the middle of training, which must not end it."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        recorder = pyddpdiag.Recorder(folder)
        ddp = _wrapped(0.002)
        recorder.attach(ddp)
        dist.barrier()
        if rank == 0:
            shutil.rmtree(folder)
        dist.barrier()
        train(ddp, rank, 3)
        recorder.close()
    mine = [
        w
        for w in heard
        if issubclass(w.category, RuntimeWarning) and f"rank {rank}: cannot write" in str(w.message)
    ]
    assert mine, [str(w.message) for w in heard]
    assert recorder.closed


@pytest.fixture(scope="module")
def tiny_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A file system of 1 MiB; "" where none can be mounted."""
    folder = tmp_path_factory.mktemp("disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    mounted = (
        LINUX
        and os.geteuid() == 0
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )
    try:
        yield str(folder) if mounted else ""
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def answers(
    tmp_path_factory: pytest.TempPathFactory, tiny_disk: str
) -> tuple[Path, list[dict[str, Caught | None]]]:
    folder = tmp_path_factory.mktemp("errors")
    return folder, run_ranks(_job, 2, folder, str(folder), tiny_disk)


# What was done, the error it must raise, words of its message, words of its hint.
EXPECTED = [
    ("closed attach", errors.RecorderClosedError, "is closed; cannot attach", "recorder.pause()"),
    ("closed steps", errors.RecorderClosedError, "is closed; cannot mark steps", "recorder.pause()"),
    ("closed resume", errors.RecorderClosedError, "is closed; cannot resume", "recorder.pause()"),
    ("closed timed", errors.RecorderClosedError, "is closed; cannot reduce a bucket", "recorder.pause()"),
    ("a NUL", errors.TraceFolderError, "'run\\x00'", "plain text"),
    ("no text", errors.TraceFolderError, "'run\\udcff'", "plain text"),
    (
        "attach twice",
        errors.AlreadyAttachedError,
        "(Branches) is attached to the recorder of",
        "recorder.detach(ddp)",
    ),
    ("attach to two recorders", errors.AlreadyAttachedError, "is attached to the recorder of", "once"),
    (
        "attach after register",
        errors.AlreadyAttachedError,
        "has a communication hook already: 'allreduce_hook'",
        "register pyddpdiag.timed(allreduce_hook)",
    ),
    (
        "attach after builtin",
        errors.AlreadyAttachedError,
        "DDP refused the hook of Branches",
        "register no other hook",
    ),
    ("below a file", errors.TraceFolderError, "cannot make the folder", "may write to"),
    ("a file", errors.TraceFolderError, "cannot make the folder", "may write to"),
    ("sidecar is a folder", errors.TraceFolderError, "cannot write", "permissions"),
    ("exists", errors.TraceExistsError, "there is a trace already", "overwrite=True"),
]


@pytest.mark.parametrize(("name", "kind", "text", "hint"), EXPECTED, ids=[row[0] for row in EXPECTED])
def test_error_names_the_rank_and_the_way_out(
    answers: Answers, name: str, kind: type[Exception], text: str, hint: str
) -> None:
    for rank, found in enumerate(answers[1]):
        error = found[name]
        assert error is not None
        assert kind.__name__ in error.kinds, error
        assert f"rank {rank}" in error.text
        assert text in error.text
        assert hint in error.text
        if kind is not RuntimeError:
            assert hint in error.hint


@pytest.mark.skipif(not LINUX, reason="there is no /proc on this system")
def test_a_folder_below_proc(answers: Answers) -> None:
    test_error_names_the_rank_and_the_way_out(
        answers,
        "below /proc",
        errors.TraceFolderError,
        "cannot make the folder '/proc/nowhere",
        "may write to",
    )


# Mistakes in the script, which every rank makes alike.
USAGE = [
    ("not DDP", "expected a DistributedDataParallel module, not Branches", "DistributedDataParallel(model)"),
    ("wrong state text", "must be a Recorder, a ProcessGroup or None, not str", "register_comm_hook"),
    ("wrong state list", "must be a Recorder, a ProcessGroup or None, not list", "register_comm_hook"),
    ("wrong state class", "must be a Recorder, a ProcessGroup or None, not type", "register_comm_hook"),
    ("capacity too small", "between 0.0625 and 65536, not 0.06", ""),
    ("capacity too large", "between 0.0625 and 65536, not 65537", ""),
    ("capacity nan", "between 0.0625 and 65536, not nan", ""),
    ("interval", "from 0 (never) to 4294967295, not -1", ""),
    ("interval too large", "parameter_interval must be", ""),
    ("statistics interval", "statistics_interval must be", ""),
    ("sentinel", "not 'loud'", ""),
    ("sentinel interval", "sentinel_interval must be from 1", ""),
    ("hook's mode", "must be 'off', 'auto' or 'require'", ""),
    ("reducer's mode", "must be 'off', 'auto' or 'require'", ""),
]


@pytest.mark.parametrize(("name", "text", "hint"), USAGE, ids=[row[0] for row in USAGE])
def test_usage_errors(answers: Answers, name: str, text: str, hint: str) -> None:
    for found in answers[1]:
        error = found[name]
        assert error is not None
        assert "UsageError" in error.kinds, error
        assert text in error.text
        assert hint in error.hint


def test_what_ddp_allows_it_allows_with_a_recorder(answers: Answers) -> None:
    for found in answers[1]:
        assert found["register after attach"] is None
        assert found["closed native"] is None


def test_overwriting_replaces_the_trace(answers: Answers) -> None:
    assert [found["overwrite"] for found in answers[1]] == [None, None]
    run = open_run(answers[0] / "exists")
    assert run.warnings == ()
    assert [rank.header.capacity for rank in run.ranks] == [2 * 2**20 // 128] * 2
    assert [len(rank.by_kind[1]) for rank in run.ranks] == [1, 1]  # type: ignore[index]


def test_a_lost_folder_does_not_end_training(answers: Answers) -> None:
    assert [found["folder lost"] for found in answers[1]] == [None, None]


def test_a_full_disk(answers: Answers, tiny_disk: str) -> None:
    if not tiny_disk:
        reason = "a small file system can only be mounted on Linux and as root"
        pytest.fail(reason) if os.environ.get("CI") == "true" and LINUX else pytest.skip(reason)
    for rank, found in enumerate(answers[1]):
        error = found["disk full"]
        assert error is not None
        assert "TraceFolderError" in error.kinds, error
        assert f"rank {rank}" in error.text
        assert "No space left on device" in error.text
        assert "free 2 MiB" in error.hint
        assert "capacity_mb" in error.hint
    # Nothing half-made is left.
    assert list(Path(tiny_disk).iterdir()) == []


@pytest.mark.skipif(not LINUX, reason="the limit of a file's size is one of POSIX")
def test_a_file_size_limit(answers: Answers) -> None:
    test_error_names_the_rank_and_the_way_out(
        answers, "file limit", errors.TraceFolderError, "cannot reserve space for", "capacity_mb"
    )
    assert list((answers[0] / "limited").iterdir()) == []


def test_without_a_process_group(tmp_path: Path) -> None:
    with pytest.raises(errors.NoProcessGroupError, match="not initialised") as caught_here:
        pyddpdiag.Recorder(tmp_path / "run")
    assert "init_process_group('gloo'" in caught_here.value.hint
    assert not (tmp_path / "run").exists()


NOT_GLOO = """
import sys
import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # registers the backend
from torch.nn.parallel import DistributedDataParallel
import pyddpdiag

folder = sys.argv[1]
dist.init_process_group("fake", rank=1, world_size=2, store=dist.FileStore(folder + "/store", 2))

def backward(state):
    ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
    ddp.register_comm_hook(state, pyddpdiag.timed_allreduce)
    ddp(torch.ones(2, 2)).sum().backward()

with pyddpdiag.Recorder(folder + "/run") as recorder:
    for act in (
        lambda: recorder.attach(DistributedDataParallel(torch.nn.Linear(2, 2))),
        lambda: backward(recorder),
        lambda: backward(dist.group.WORLD),
    ):
        try:
            act()
        except pyddpdiag.errors.NotGlooError as error:
            assert "rank 1: " in error.message, error
            assert "'cpu'" in error.message and "'fake'" in error.message, error
            assert "init_process_group('gloo')" in error.hint, error
            print("refused")
"""


def test_a_group_that_is_not_gloo(tmp_path: Path) -> None:
    done = python("-c", NOT_GLOO, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["refused"] * 3
    with contextlib.suppress(FileNotFoundError):
        (tmp_path / "store").unlink()
