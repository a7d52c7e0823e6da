"""The short form of the bed of faults: causes in real training that the report must name however busy the machine is.

`python3 dev.py accuracy` is the long form: it also injects what only figures tell, and counts.
"""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from bed.causes import CAUSES
from bed.hosts import Hosts, why_not
from bed.jobs import Job
from bed.ranks import environment
from bed.runner import Outcome, Plan, run
from bed.server import Server
from bed.truth import Answer, Drawn, Truth, family
from support.promised import need

# The open half's seeds; small jobs, so that many fit into a short time.
SEED = 22
SMALL = Job("mlp", batch=16)
# On a machine that is busy with other things it takes its time until a standstill is certain.
ASK_AGAIN_S = 45.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server | None]:
    """Forks the ranks, where they can be."""
    if sys.platform != "linux":
        yield None
        return
    made = Server(environment())
    yield made
    made.close()


def judged(cause: str, folder: Path, server: Server | None, drawn: Drawn | None = None) -> Outcome:
    """The outcome of a run that must not fail itself."""
    drawn = drawn or CAUSES[cause].draw(random.Random(SEED), SMALL)
    outcome = run(Plan(SEED, cause), folder, drawn=drawn, brief=True, ask_again_s=ASK_AGAIN_S, server=server)
    assert outcome.problem == "", outcome
    return outcome


@pytest.mark.parametrize(
    "cause", ["killed", "stuck in its code", "skips a step", "dies in a user's collective"]
)
def test_what_goes_wrong_is_named_with_its_culprit(cause: str, tmp_path: Path, server: Server | None) -> None:
    outcome = judged(cause, tmp_path, server)
    assert outcome.judgement is not None
    assert outcome.judgement.cause and outcome.judgement.blame == "right", outcome
    assert outcome.exit_code == 1


def test_a_nan_is_named_with_the_rank_that_made_it(tmp_path: Path, server: Server | None) -> None:
    # In a step of which no statistics are taken.
    job = replace(SMALL, ranks=3)
    fault = {"name": "nan", "rank": 1, "step": 13}
    drawn = Drawn(job, fault, Truth((Answer("non_finite_gradient"),), 1))
    outcome = judged("NaN in one rank", tmp_path, server, drawn)
    assert outcome.judgement is not None and outcome.verdict is not None
    assert outcome.judgement.cause and outcome.judgement.blame == "right", outcome
    assert outcome.verdict["findings"][0]["since_step"] == 13
    assert outcome.exit_code == 1


def test_a_straggler_of_several_steps_time_is_named(tmp_path: Path, server: Server | None) -> None:
    # Its delay is a multiple of the step as measured just before, so that it stands out of any other load.
    drawn = Drawn(SMALL, {"name": "sleep", "rank": 1, "share": 5.0}, Truth((Answer("late_rank"),), 1))
    outcome = judged("straggler sleeps", tmp_path, server, drawn)
    assert outcome.judgement is not None
    assert outcome.judgement.kind and outcome.judgement.blame == "right", outcome
    assert outcome.exit_code == 1
    assert outcome.counts, f"its cost is measured: {outcome}"


def test_a_healthy_training_reports_no_failure(tmp_path: Path, server: Server | None) -> None:
    outcome = judged("healthy", tmp_path, server, Drawn(SMALL, {"name": ""}, Truth()))
    assert outcome.judgement is not None and outcome.verdict is not None
    # What other load on the machine does to its ranks may be told; that is for the long form to count.
    assert not {family(kind) for kind in outcome.judgement.alarms} & {"failures", "values"}, outcome
    assert all(finding["severity"] != "error" for finding in outcome.verdict["findings"]), outcome
    assert len(outcome.account) == SMALL.ranks
    for wall_s, total_s, unknown_s in outcome.account:
        assert total_s == pytest.approx(wall_s, rel=0.01) and unknown_s < 0.05 * wall_s, outcome


CONNECT = """
import socket, sys, time
begin = time.monotonic()
socket.create_connection(("10.78.0.1", 29518), timeout=60).close()
print(time.monotonic() - begin)
"""
LISTEN = """
import socket
server = socket.create_server(("10.78.0.1", 29518))
print("listens", flush=True)
while True:
    server.accept()[0].close()
"""


def test_a_faulty_link_delays_what_passes_it() -> None:
    need("namespaces", why_not())
    fault = {"name": "delay", "rank": 1, "ms": 150.0}
    with closing(Hosts(2, fault)) as made:
        made.switch(True)
        with subprocess.Popen(
            made.command(0, [sys.executable, "-c", LISTEN]), stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stdout is not None and server.stdout.readline() == "listens\n"
                client = made.command(1, [sys.executable, "-c", CONNECT])
                done = subprocess.run(client, capture_output=True, text=True, check=True, timeout=60)
            finally:
                server.kill()
    # There and back.
    assert float(done.stdout) >= 0.3
