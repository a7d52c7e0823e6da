"""Every script in examples/, run as a user runs it: two real ranks each."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from support.forked_command import forked
from support.promised import need
from train_support import ROOT, environment, finish, records_published, started

from pyddpdiag.messages import torchrun
from pyddpdiag.ranks import interfaces
from pyddpdiag.trace.layout import Flag, Kind, StepTime
from pyddpdiag.trace.run import open_run

EXAMPLES = ROOT / "examples"
# Two scripts after each other on a busy machine; pytest ends a test later than this.
LIMIT_S = 180
# Started as it is; the others as forks, which spares each of their ranks the import of torch.
REAL = ("basic.py", "accelerate_example.py", "lightning_example.py")


def run_example(name: str, cwd: Path, *arguments: object, launcher: tuple[str, ...] = ()) -> str:
    """The example's standard output; fails the test if it fails or is not done in time."""
    return ran_example(name, cwd, *arguments, launcher=launcher)[0]


def ran_example(name: str, cwd: Path, *arguments: object, launcher: tuple[str, ...] = ()) -> tuple[str, str]:
    """Its standard output and its errors."""
    # Without libuv as on Windows: the same store on both systems.
    variables = {"GLOO_SOCKET_IFNAME": interfaces.loopback() or "", "USE_LIBUV": "0"}
    words = (*launcher, str(EXAMPLES / name), *map(str, arguments))
    if launcher or name in REAL:
        with started([sys.executable, *words], cwd, **variables) as process:
            code, out, err = finish(process, LIMIT_S)
    else:
        with forked(words, cwd, environment(**variables)) as fork:
            code, out, err = fork.ended(LIMIT_S)
    assert code == 0, err
    assert "Traceback" not in err
    return out, err


def losses(out: str) -> list[float]:
    return [float(found) for found in re.findall(r"loss (\d+\.\d+)", out)]


def assert_recorded(folder: Path, ranks: int = 2) -> None:
    from pyddpdiag.pipeline import load_report

    report = load_report(folder)
    assert [rank.rank for rank in report.ranks] == list(range(ranks))
    assert all(rank.closed for rank in report.ranks)
    assert report.buckets


def test_basic_learns_and_ends_with_equal_weights(tmp_path: Path) -> None:
    out = run_example("basic.py", tmp_path, "trace")
    assert losses(out)[-1] < 0.1 * losses(out)[0]
    assert "weights are equal on all ranks: True" in out
    assert_recorded(tmp_path / "trace")


def test_checkpoint_resumes_to_the_last_bit(tmp_path: Path) -> None:
    out = run_example("checkpoint.py", tmp_path, "trace")
    assert "the losses are equal to the last bit: True" in out
    pairs = re.findall(r"uninterrupted (\d\.\d+)  interrupted at 6 (\d\.\d+)", out)
    assert len(pairs) == 12 and all(one == two for one, two in pairs)
    assert float(pairs[-1][0]) < float(pairs[0][0])
    for name in ("begun", "resumed", "whole"):
        assert_recorded(tmp_path / "trace" / name)


def test_model_parallel_inside_ddp_learns(tmp_path: Path) -> None:
    out = run_example("model_parallel.py", tmp_path, "trace")
    assert "layer 1 on " in out
    first, last = losses(out)
    assert last < 0.1 * first
    assert_recorded(tmp_path / "trace")


def test_averaging_by_hand_is_training_on_the_whole_batch(tmp_path: Path) -> None:
    out = run_example("by_hand.py", tmp_path, "trace")
    found = re.findall(r"(GradientReducer|plain all-reduce): 2 ranks and .* at most (\S+) in any weight", out)
    assert [way for way, _ in found] == ["GradientReducer", "plain all-reduce"]
    assert all(float(apart) < 1e-6 for _, apart in found)
    first, last = losses(out)
    assert last < 0.5 * first
    assert records_published(tmp_path / "trace", 1) > 30


def test_uneven_data_end_in_join_with_the_recorder_attached(tmp_path: Path) -> None:
    out = run_example("uneven.py", tmp_path, "trace")
    assert "rank 0 trained 4 batches" in out and "rank 1 trained 7 batches" in out
    assert "weights are equal on all ranks: True" in out
    assert_recorded(tmp_path / "trace")


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [("slow_rank", "late_rank"), ("nan", "non_finite_gradient"), ("same_data", "same_data")],
)
def test_the_troubles_of_the_gallery_are_named(trouble: str, kind: str, tmp_path: Path) -> None:
    from pyddpdiag.pipeline import load_report

    launcher = ("-m", "pyddpdiag", "run", "--trace", "trace", "--nproc", "2", "--")
    ran_example("troubles.py", tmp_path, trouble, launcher=launcher)
    findings = load_report(tmp_path / "trace").verdict.findings
    assert kind in [finding.kind for finding in findings]


def test_torchrun_starts_two_ranks_by_the_line_for_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It works on any system; torchrun as it is on others starts the ranks in test_train_join.py."""
    monkeypatch.setenv(torchrun.UNSHARED.name, torchrun.UNSHARED.value)
    meeting = str(tmp_path / "meeting")
    words = torchrun.COMMAND_ON_WINDOWS.replace("D:/rdzv", meeting).removesuffix(" SCRIPT.py").split()
    out = run_example("torchrun.py", tmp_path, "trace", launcher=("-m", "torch.distributed.run", *words[1:]))
    assert "rank 0 of 2 wrote" in out and "rank 1 of 2 wrote" in out
    assert_recorded(tmp_path / "trace")


def test_the_torchrun_script_alone_is_a_world_of_one(tmp_path: Path) -> None:
    out = run_example("torchrun.py", tmp_path, "trace")
    assert (
        "One rank only. Two need a launcher: torchrun --nproc-per-node 2" in out
        and "rank 0 of 1 wrote" in out
    )


FRAMEWORKS = {
    "lightning": (),
    "accelerate": (),
    "transformers": ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
}
# Steps of each rank, and how often each phase was on the first.
SEEN = {
    "lightning": (32, {"evaluation": 2, "checkpoint": 2}),
    "accelerate": (16, {"checkpoint": 1}),
    "transformers": (32, {"evaluation": 4, "checkpoint": 4}),
}


@pytest.mark.parametrize("package", FRAMEWORKS)
def test_under_other_frameworks(package: str, tmp_path: Path) -> None:
    absent = importlib.util.find_spec(package) is None
    need("frameworks", f"{package} is not installed (dependency group 'frameworks')" if absent else "")
    out, err = ran_example(f"{package}_example.py", tmp_path, "trace", launcher=FRAMEWORKS[package])
    assert losses(out)[-1] < 0.5 * losses(out)[0]
    assert_recorded(tmp_path / "trace")
    assert err.count("pyddpdiag report trace") == 1, err
    if package != "accelerate":
        metrics = "".join(path.read_text("utf-8") for path in tmp_path.glob("trace-metrics/**/metrics.csv"))
        assert "pyddpdiag/step_ms" in out + metrics
    steps, phases = SEEN[package]
    for rank in open_run(tmp_path / "trace").ranks:
        marked = rank.of_kind(Kind.STEP)
        assert marked["step"].tolist()[:steps] == list(range(steps))
        whole = marked[(marked["flags"] & (Flag.ABANDONED | Flag.NO_BATCH)) == 0]
        assert len(whole) == steps
        assert (whole["times"][:, StepTime.BEGIN] >= whole["times"][:, StepTime.WAIT_BEGIN]).all()
        named = [name.decode() for name in rank.of_kind(Kind.PHASE)["name"].tolist()]
        assert {name: named.count(name) for name in set(named)} == phases


def test_an_example_that_needs_a_launcher_says_so(tmp_path: Path) -> None:
    absent = importlib.util.find_spec("transformers") is None
    need("frameworks", "transformers is not installed (dependency group 'frameworks')" if absent else "")
    with started([sys.executable, str(EXAMPLES / "transformers_example.py")], tmp_path) as process:
        code, out, err = finish(process, LIMIT_S)
    assert code == 1 and not out
    assert "needs a launcher: torchrun --nproc-per-node 2" in err and "Traceback" not in err


def test_no_example_is_left_out() -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f'"{path.name}"' in tested or path.stem.removesuffix("_example") in FRAMEWORKS
