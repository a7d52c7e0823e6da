"""Who ended whom: launchers, schedulers and nodes say it, and are never taken for a rank that failed."""

from __future__ import annotations

import pytest
from support.public_logs import SITE, VICTIM, prefixed, raised, spawned, torchrun

from pyddpdiag.messages.logs import OWN_ERROR, read

LOST = raised(f"RuntimeError: {VICTIM}", "/home/me/fit.py")
LATE = raised(
    "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete",
    "/home/me/fit.py",
)
KEY = raised("KeyError: 'label_17'", "/home/me/fit.py", "/home/me/data.py")
MISSED = "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 2000 ms"
CAME = (
    "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
    f"rank 0. Please check rank 0 logs for faulty rank.\n Original exception: \n{VICTIM}"
)


@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
def test_the_launchers_summary_is_not_the_cause(prefix: str) -> None:
    verdict = read({"job.log": prefixed(prefix, KEY) + torchrun((1, 1), (0, -15))})
    assert (verdict.explanation.kind, verdict.culprits) == (OWN_ERROR, ("rank 1",))
    assert "KeyError: 'label_17', at data.py:11" in verdict.sentence


def test_the_first_error_of_several_ranks_without_prefixes_counts() -> None:
    verdict = read({"job.log": KEY + LOST + LOST + torchrun((2, 1), (0, 1), (1, 1))})
    assert (verdict.explanation.kind, verdict.culprits) == (OWN_ERROR, ("rank 2",))


def test_a_summary_alone_names_the_rank_and_says_where_to_look() -> None:
    verdict = read({"job.log": torchrun((1, 1), (0, -15))})
    assert (verdict.explanation.kind, verdict.culprits) == ("launcher_summary", ("rank 1",))
    assert "its error is not here" in verdict.sentence and "exit code 1" in verdict.sentence
    assert any("--log-dir" in line for line in verdict.explanation.lines)


def test_a_traceback_that_torchrun_passes_on_is_the_ranks() -> None:
    passed_on = KEY.replace("\n", "\n  ")
    verdict = read({"job.log": torchrun((3, 1), (0, -15), says=passed_on)})
    assert (verdict.explanation.kind, verdict.culprits) == (OWN_ERROR, ("rank 3",))


def test_a_victim_that_torchrun_saw_first_is_none_the_less_a_victim() -> None:
    killed = read({"job.log": prefixed("[rank0]: ", LOST) + torchrun((0, 1), (1, -9))})
    assert (killed.explanation.kind, killed.culprits) == ("rank_killed", ("rank 1",))
    # Killed at the end of the 30 s that torchrun gives them: no cause.
    late = torchrun((0, 1), (1, -9)).replace("_10:11:12", "_10:11:44", 1)
    assert read({"job.log": prefixed("[rank0]: ", KEY) + late}).culprits == ("rank 0",)
    assert read({"job.log": late}).culprits == ("rank 0",)


def test_a_rank_that_was_still_busy_is_the_suspect_of_those_that_waited() -> None:
    verdict = read({"job.log": prefixed("[rank1]: ", LATE) + torchrun((1, 1), (0, -15))})
    assert verdict.culprits == ("rank 0",)
    assert "rank 0 shows no error" in verdict.sentence


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *[(-9, "rank_killed"), (-11, "rank_crashed"), (-6, "rank_aborted")],
        *[(-7, "shared_memory_full"), (-4, "illegal_instruction"), (3221225477, "rank_crashed")],
    ],
)
def test_what_an_exit_code_means(code: int, kind: str) -> None:
    verdict = read({"job.log": torchrun((1, code), (0, -15))})
    assert (verdict.explanation.kind, verdict.culprits) == (kind, ("rank 1",))


def test_the_three_forms_of_the_barrier_name_the_rank_that_did_not_come() -> None:
    first = raised(f"RuntimeError: {MISSED}", "/home/me/fit.py")
    both = raised(
        "RuntimeError: [Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 2000 ms", "/home/me/fit.py"
    )
    came = raised(CAME, "/home/me/fit.py")
    job = prefixed("[rank1]: ", came) + prefixed("[rank0]: ", first) + torchrun((0, 1), (1, -15), (2, -15))
    assert read({"job.log": job}).culprits == ("rank 2",)
    assert read({"rank_0.log": first, "rank_1.log": came, "rank_2.log": LOST}).culprits == ("rank 2",)
    waits = {"rank_0.log": f"[E] [Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms\n{both}"}
    assert read(waits).culprits == ("rank 1", "rank 2")
    alone = read({"rank_1.log": came})
    assert alone.culprits == () and "the log of rank 0 names it" in alone.sentence


@pytest.mark.parametrize(
    ("said", "kind", "who"),
    [
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been "
            "OOM Killed.\nsrun: error: node-a: task 1: Out Of Memory\n",
            "out_of_memory",
            "task 1",
        ),
        ("Memory cgroup out of memory: Killed process 4711 (python) total-vm:9kB\n", "out_of_memory", ""),
        (
            "    Last State: Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n",
            "out_of_memory",
            "",
        ),
        ("(raylet) Task was killed due to the node running low on memory.\n", "out_of_memory", ""),
        ("trainer-1 exited with code 137\n", "rank_killed", "trainer-1"),
        ("run.sh: line 4:  4711 Killed                  python fit.py --rank 1\n", "rank_killed", ""),
        ("Killed\n", "rank_killed", ""),
        ("srun: error: node-a: task 1: Killed\n", "rank_killed", "task 1"),
        (
            "mpirun noticed that process rank 1 with PID 99 on node a exited on signal 9 (Killed).\n",
            "rank_killed",
            "rank 1",
        ),
        (
            "slurmstepd: error: *** STEP 4.0 ON a CANCELLED AT 2026-02-03T09:09:37 DUE TO PREEMPTION ***\n",
            "job_cancelled",
            "",
        ),
        (
            raised(
                "torch.distributed.elastic.multiprocessing.api.SignalException: Process 79 got signal: 1",
                f"{SITE}/torch/distributed/run.py",
            ),
            "terminal_closed",
            "",
        ),
    ],
)
def test_what_the_scheduler_or_the_node_says_beside_a_victim_is_the_cause(
    said: str, kind: str, who: str
) -> None:
    for logs in ({"job.log": LOST + said}, {"rank_0.log": LOST, "node.log": said}):
        verdict = read(logs)
        assert verdict.explanation.kind == kind, verdict.sentence
        assert verdict.culprits == ((who,) if who else ())
        assert "only went down with it" in verdict.sentence


def test_an_error_of_a_ranks_own_stands_before_what_the_scheduler_did_then() -> None:
    verdict = read({"rank_1.log": KEY, "node.log": "srun: error: node-a: task 0: Killed\nKilled\n"})
    assert (verdict.explanation.kind, verdict.culprits) == (OWN_ERROR, ("rank 1",))
    # The manager's process was what the kernel ended.
    reset = raised(
        "ConnectionResetError: [Errno 104] Connection reset by peer", "/usr/lib/python3/multiprocessing/c.py"
    )
    verdict = read({"rank_1.log": reset, "node.log": "Out of memory: Killed process 4711 (python)\n"})
    assert verdict.explanation.kind == "out_of_memory"


def test_a_spawned_rank_is_named_and_its_error_is_its_own() -> None:
    verdict = read({"job.log": spawned(1, KEY)})
    assert (verdict.explanation.kind, verdict.culprits) == (OWN_ERROR, ("rank 1",))
    crashed = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV"
    verdict = read({"job.log": raised(crashed, "/home/me/fit.py")})
    assert (verdict.explanation.kind, verdict.culprits) == ("rank_crashed", ("rank 1",))


def test_an_error_that_goes_on_in_further_lines_is_recognised_by_these() -> None:
    keys = raised("RuntimeError: Error(s) in loading state_dict for Net:", "/home/me/fit.py")
    verdict = read({"job.log": f'{keys}\tUnexpected key(s) in state_dict: "module.fc.weight". \n'})
    assert verdict.explanation.kind == "module_keys"
    guard = raised("RuntimeError: ", "<string>", "/usr/lib/python3/multiprocessing/spawn.py")
    text = (
        f"{guard}        An attempt has been made to start a new process before the\n"
        "        current process has finished its bootstrapping phase.\n"
    )
    assert read({"job.log": text}).explanation.kind == "main_guard"


def test_processes_that_have_names_and_no_ranks_are_distinguished() -> None:
    compose = (
        prefixed("trainer-1  | ", KEY) + prefixed("trainer-2  | ", LOST) + "trainer-1 exited with code 1\n"
    )
    verdict = read({"job.log": compose})
    assert (verdict.explanation.kind, verdict.culprits) == (OWN_ERROR, ("trainer-1",))
    assert verdict.sentence.endswith("trainer-2 only went down with it.")
    pods = prefixed("[pod/job-master-0/pytorch] ", LOST) + prefixed("[pod/job-worker-0/pytorch] ", KEY)
    assert read({"job.log": pods}).culprits == ("job-worker-0",)
    ray = prefixed("\x1b[36m(Worker pid=31, ip=10.0.0.7)\x1b[0m ", LOST) + prefixed("(Worker pid=32) ", KEY)
    assert read({"job.log": ray}).culprits == ("Worker pid=32",)
    labelled = prefixed("0: ", LOST) + prefixed("1: ", KEY)
    assert read({"job.log": labelled}).culprits == ("rank 1",)


def test_a_changed_buffer_is_ddps_only_where_there_are_ranks() -> None:
    error = raised(
        "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: "
        "[torch.FloatTensor [64]] is at version 3; expected version 2 instead.",
        "/home/me/fit.py",
        f"{SITE}/torch/autograd/graph.py",
    )
    for logs in (
        {"job.log": prefixed("[rank0]: ", error)},
        {"rank_0.log": error},
        {"job.log": error + torchrun((0, 1))},
    ):
        assert read(logs).explanation.kind == "buffer_changed"
    assert read({"job.log": error}).explanation.kind == OWN_ERROR
