"""Watching a GPU: against a stand-in for NVML, and against the real package on a machine that may have no GPU."""

import dataclasses
import inspect
import json
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.nvml import Gpu, Nvml, NVMLError
from support.trace_writer import MS, write_training

from pyddpdiag.cli.train import show
from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.pipeline import explain_gpus, load_report
from pyddpdiag.record import gpu
from pyddpdiag.system.threads import names
from pyddpdiag.trace.layout import Kind
from pyddpdiag.train import TrainResult
from pyddpdiag.train.loop import watched

SOON_S = 0.001


def sentences_after(nvml: Nvml, uuid: str, looks: int) -> tuple[list[str], GpuUse | None]:
    """What a watch said, and the use that it saw, after it has looked so often at the first GPU."""
    sentences: list[str] = []
    watch = gpu.Watch(nvml, uuid, sentences.append, SOON_S)
    limit = time.monotonic() + 20
    while nvml._gpus and nvml._gpus[0].looks < looks and watch._side._thread.is_alive():
        assert time.monotonic() < limit
        time.sleep(SOON_S)
    watch.stop()
    assert nvml.open == 0 and not watch._side._thread.is_alive()
    return sentences, watch.use(3)


def test_the_ranks_own_gpu_is_watched_whatever_number_it_has() -> None:
    mine, other = Gpu("GPU-b", 0, 4_000), Gpu("GPU-a", 99, 1)
    percents = iter([10, 20, 90])

    def change(seen: Gpu) -> None:
        seen.percent = next(percents, 20)

    mine.before_each = change
    sentences, use = sentences_after(Nvml(mine, other), "b", 3)
    assert not sentences and use is not None
    assert (use.rank, use.utilisation_percent) == (3, 20.0)
    assert (use.memory_used_bytes, use.memory_total_bytes) == (4_000, 80_000_000_000)
    assert use.samples >= 3 and other.looks == 0


def test_a_part_of_a_gpu_tells_its_memory_only_and_that_is_one_sentence() -> None:
    sentences, use = sentences_after(Nvml(Gpu("MIG-b", NVMLError("Not Supported"), 4_000)), "b", 3)
    assert len(sentences) == 1 and "Not Supported" in sentences[0]
    assert use is not None and use.utilisation_percent is None and use.memory_used_bytes == 4_000
    assert not use.low and "use not known" in str(use)


def test_readings_that_fail_for_a_while_are_left_out() -> None:
    def fail_first(seen: Gpu) -> None:
        seen.percent = NVMLError("Unknown Error") if seen.looks < 4 else 70

    shaky = Gpu("GPU-b", before_each=fail_first, used=NVMLError("GPU is lost"))
    sentences, use = sentences_after(Nvml(shaky), "b", 6)
    assert len(sentences) == 1
    assert use is not None and use.utilisation_percent == 70 and use.memory_used_bytes is None


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [
        (Nvml(broken="Driver Not Loaded"), "Driver Not Loaded"),
        (Nvml(Gpu("GPU-a")), "Not Found"),
        (Nvml(Gpu("GPU-b", OSError("no more"))), "no more"),
    ],
)
def test_a_watch_that_cannot_begin_or_breaks_says_one_sentence(nvml: Nvml, reason: str) -> None:
    sentences, use = sentences_after(nvml, "b", 2)
    assert len(sentences) == 1 and reason in sentences[0]
    assert use is None


def test_a_long_run_keeps_few_samples_of_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_MOST_SAMPLES", 8)
    sentences, use = sentences_after(Nvml(Gpu("GPU-b", 40)), "b", 30)
    assert not sentences and use is not None
    assert 4 <= use.samples <= 8


def test_nvml_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyddpdiag.record.side_thread._LEAVE_S", 0.05)
    go_on = threading.Event()
    looked = threading.Event()

    def hang(seen: Gpu) -> None:
        looked.set()
        assert go_on.wait(20)

    watch = gpu.Watch(Nvml(Gpu("GPU-b", before_each=hang)), "b", lambda text: None, SOON_S)
    assert looked.wait(20)
    watch.stop()
    assert watch._side._thread.is_alive() and watch.use(0) is None
    go_on.set()
    watch._side._thread.join(20)


def test_nothing_is_done_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sentences: list[str] = []
    with watched(torch.device("cpu"), sentences.append) as use:
        pass
    assert use(0) is None and not sentences


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A GPU that torch knows by its UUID, and nothing else of it."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="b"))
    return torch.device("cuda", 0)


def test_without_the_package_a_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, cuda: torch.device
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sentences: list[str] = []
    with watched(cuda, sentences.append) as use:
        pass
    assert use(0) is None
    assert len(sentences) == 1 and "pyddpdiag[gpu]" in sentences[0]


def test_a_failing_training_ends_the_watch_as_well(
    monkeypatch: pytest.MonkeyPatch, cuda: torch.device
) -> None:
    nvml = Nvml(Gpu("GPU-b"))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with pytest.raises(ZeroDivisionError), watched(cuda, lambda text: None):
        raise ZeroDivisionError
    assert nvml.open == 0
    assert "pyddpdiag-gpu" not in names().values()


def test_a_gpu_is_looked_at_once_however_many_ask(
    monkeypatch: pytest.MonkeyPatch, cuda: torch.device
) -> None:
    nvml = Nvml(Gpu("GPU-b", 40))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    mine, other = gpu.watch(cuda), gpu.watch(cuda)
    assert mine is not None and mine is other
    mine.stop()
    assert mine._side._thread.is_alive()
    mine.stop()
    assert not mine._side._thread.is_alive() and nvml.open == 0
    again = gpu.watch(cuda)
    assert again is not None and again is not mine
    again.stop()


def test_the_real_package_has_these_names_and_says_one_sentence_without_a_gpu() -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    for name, function in inspect.getmembers(Nvml, inspect.isfunction):
        if name.startswith("nvml"):
            ours = [part for part in inspect.signature(function).parameters if part != "self"]
            real = getattr(pynvml, name)
            assert len(inspect.signature(real).parameters) >= len(ours)
    assert issubclass(pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError)
    sentences: list[str] = []
    watch = gpu.Watch(pynvml, "00000000-0000-0000-0000-000000000000", sentences.append, SOON_S)
    watch._side._thread.join(20)
    watch.stop()
    # No such GPU anywhere; where there is none at all, its library is missing.
    assert watch.use(0) is None
    assert len(sentences) == 1 and "NVML says" in sentences[0]


LOW = GpuUse(1, 40, 20.0, 2_000_000_000, 80_000_000_000)


@pytest.mark.parametrize(
    ("times", "cause", "words"),
    [
        ({"data_wait_ms": 60.0}, "data_wait", "waiting for data (7"),
        ({"wire_ms": 60.0}, "exposed_communication", "after backward (8"),
        ({}, "small_batch", "larger --batch-size"),
        ({"step_records": False}, "cannot_tell", "is unknown"),
    ],
)
def test_low_use_is_explained_by_the_largest_part_of_the_step(
    times: dict[str, float], cause: str, words: str, tmp_path: Path
) -> None:
    write_training(tmp_path, **times)  # type: ignore[arg-type]
    *_, note = load_report(tmp_path, gpus=(LOW,)).verdict.findings
    assert (note.kind, note.severity, note.rank) == ("low_gpu_use", "note", 1)
    assert note.evidence["reason"] == cause and words in note.advice
    assert explain_gpus((LOW,), tmp_path) == {1: note}
    sidecar = tmp_path / "rank_1.json"
    content = json.loads(sidecar.read_text(encoding="utf-8"))
    content["gpu"] = {name: value for name, value in dataclasses.asdict(LOW).items() if name != "rank"}
    sidecar.write_text(json.dumps(content), encoding="utf-8")
    *_, recorded = load_report(tmp_path).verdict.findings
    assert recorded == note
    assert explain_gpus((dataclasses.replace(LOW, utilisation_percent=80.0),), tmp_path) == {}
    elsewhere = explain_gpus((dataclasses.replace(LOW, rank=7),), tmp_path)
    assert elsewhere[7].evidence["reason"] == "cannot_tell"


def test_low_use_has_the_line_at_which_the_rank_is_meanwhile(tmp_path: Path) -> None:
    writers = write_training(tmp_path, data_wait_ms=60.0)
    for writer in writers:
        for record in [each for each in writer.records if each["kind"] == Kind.STEP]:
            writer.look(int(record["times"][0]) + MS, ("train.py", 7, "decode"))
        writer.write(tmp_path)
    *_, note = load_report(tmp_path, gpus=(LOW,)).verdict.findings
    assert (note.kind, note.where) == ("low_gpu_use", "train.py:7 in decode")


def test_text_and_json_tell_the_use_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_training(tmp_path, data_wait_ms=60.0)
    busy = GpuUse(0, 1, 90.0, 1_000_000_000, 80_000_000_000)
    result = TrainResult(2, "native", str(tmp_path), 10, 1, (), 1.0, gpus=(busy, LOW))
    show(result, False)
    out = capsys.readouterr().out
    assert "GPU of rank 0: 90% used, 1.00 of 80.00 GB memory (median of 1 sample).\n" in out
    assert "GPU of rank 1: 20% used" in out and "Low use: the largest part" in out
    show(result, True)
    gpus = json.loads(capsys.readouterr().out)["gpus"]
    assert gpus[0]["low_use"] is None and gpus[0]["memory_total_bytes"] == 80_000_000_000
    assert gpus[1]["low_use"]["cause"] == "data_wait" and gpus[1]["low_use"]["share"] > 0.7
    show(dataclasses.replace(result, trace=None, hook="plain"), False)
    assert "no trace separates" in capsys.readouterr().out
    show(dataclasses.replace(result, trace=str(tmp_path / "gone")), True)
    assert json.loads(capsys.readouterr().out)["gpus"][1]["low_use"]["cause"] == "cannot_tell"
