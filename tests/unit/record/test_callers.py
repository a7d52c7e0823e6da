"""Who calls a collective: the script, or a package whose loop it runs in. Real frames, of files that need not exist."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pyddpdiag.record import callers
from pyddpdiag.record.callers import caller_of, maker, passes_here

INSTALLED = Path(sysconfig.get_paths()["purelib"])


def functions(module: str, source: str, **known: Any) -> dict[str, Any]:
    """The functions of a module that is installed, or the script's where it is `__main__`."""
    file = Path("train.py") if module == "__main__" else INSTALLED / f"{module.replace('.', '/')}.py"
    space: dict[str, Any] = {"__name__": module, **known}
    exec(compile(source, str(file.absolute()), "exec"), space)
    return space


@pytest.fixture(autouse=True)
def no_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "_ways", [])
    monkeypatch.setattr(callers, "_known", {})


@pytest.fixture
def calls() -> Iterator[Mapping[str, Any]]:
    """What torch stands for here: a forward pass, and a collective that notes its caller."""
    found: list[tuple[str, str]] = []

    def here(what: Callable[[FrameType], Any]) -> Callable[[], None]:
        return functions("torch.nn", "def call(): what(here())", what=what, here=lambda: sys._getframe(1))[
            "call"
        ]

    yield {
        "found": found,
        "forward": here(passes_here),
        "reduce": here(lambda frame: found.append(caller_of(frame))),
    }


LOOP = """
def fit(script):
    for batch in range(2):
        advance(script)

def advance(script):
    forward()
    needed()
    script()

def needed():
    gather()
"""


def test_a_loop_s_own_call_is_the_package_s_and_a_call_back_is_the_script_s(calls: Mapping[str, Any]) -> None:
    gather = functions("accelerate.operations", "def gather(): reduce()", reduce=calls["reduce"])["gather"]
    loop = functions("lightning.loops.epoch", LOOP, forward=calls["forward"], gather=gather)
    functions("__main__", "def step():\n  reduce()\n\nfit(step)", fit=loop["fit"], reduce=calls["reduce"])
    assert (
        calls["found"]
        == [("lightning/loops/epoch.py:8 in advance", "lightning"), ("train.py:2 in step", "")] * 2
    )


def test_a_helper_of_a_package_that_the_script_s_own_loop_calls_is_the_script_s(
    calls: Mapping[str, Any],
) -> None:
    gather = functions("accelerate.operations", "def gather(): reduce()", reduce=calls["reduce"])["gather"]
    functions(
        "__main__", "for _ in range(2):\n  forward()\n  gather()", forward=calls["forward"], gather=gather
    )
    assert calls["found"] == [("train.py:3", "")] * 2


def test_what_a_package_s_loader_calls_while_the_loop_takes_a_batch_is_the_package_s(
    calls: Mapping[str, Any],
) -> None:
    source = "def batches():\n  while True:\n    reduce()\n    yield 1"
    batches = functions("accelerate.data_loader", source, reduce=calls["reduce"])["batches"]
    script = "def main():\n  for at, _ in zip(range(2), batches()):\n    forward()\nmain()"
    functions("__main__", script, forward=calls["forward"], batches=batches)
    assert calls["found"] == [("accelerate/data_loader.py:3 in batches", "accelerate")] * 2


def test_the_framework_that_makes_a_module_is_the_one_that_the_script_called() -> None:
    made: list[str] = []
    note = functions("torch.nn.parallel", "def make(): note(here())", note=lambda f: made.append(maker(f)))
    note["here"] = lambda: sys._getframe(1)
    prepare = functions("accelerate.accelerator", "def prepare(): make()", make=note["make"])["prepare"]
    train = functions("transformers.trainer", "def train(): prepare()", prepare=prepare)["train"]
    functions("__main__", "train()\nprepare()\nmake()", train=train, prepare=prepare, make=note["make"])
    worker = functions("ray.train", "def run(loop): loop()")["run"]
    functions("__main__", "run(make)\nrun(lambda: make())", run=worker, make=note["make"])
    assert made == ["transformers", "accelerate", "", "ray", ""]
