"""Who speaks in a log: facts from outside only in the form of those who write them, tracebacks whose head is cut off,
exceptions that end no rank, tasks that SLURM ends because another one failed, ranks that never began."""

from __future__ import annotations

import pytest
from support.public_logs import SITE, raised

from pyddpdiag.doctor.main import log_exit_code as exit_code
from pyddpdiag.messages.logs import NO_ERROR, OWN_ERROR, THREAD_ERROR, read

VICTIM = raised(
    "RuntimeError: [/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:7",
    "/home/me/fit.py",
)
CANCELLED = "slurmstepd: error: *** STEP 4711.0 ON n01 CANCELLED AT 2026-02-03T10:11:12 ***\n"
TIME_LIMIT = "slurmstepd: error: *** JOB 4711 ON n01 CANCELLED AT 2026-02-03T10:11:12 DUE TO TIME LIMIT ***\n"
KILLED = "Out of memory: Killed process 4711 (python) total-vm:9kB\n"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("OSError: [Errno 28] No space left on device: '/data/chest/x-ray/last.pt'", "disk_full"),
        ("OSError: [Errno 28] No space left on device: '/tmp/ray/raylet/last.pt'", "disk_full"),
        ("OSError: [Errno 28] No space left on device: '/var/lib/kubelet/pods/7/last.pt'", "disk_full"),
        ("OSError: [Errno 122] Disk quota exceeded: '/home/me/srun: notes'", "disk_full"),
        ("MemoryError: memory pressure: 7 of 8 GB were taken", "out_of_memory"),
    ],
)
def test_an_error_with_the_name_of_a_scheduler_in_it_is_the_ranks_own(error: str, kind: str) -> None:
    verdict = read({"rank_0.log": VICTIM, "rank_1.log": raised(error, "/home/me/fit.py")})
    assert (verdict.explanation.kind, verdict.culprits) == (kind, ("rank 1",))
    assert verdict.sentence.endswith("; rank 0 only went down with it.")


@pytest.mark.parametrize(
    ("line", "who"),
    [
        ("[ 9138.22] " + KILLED, "the kernel"),
        (
            "Feb  3 10:11:12 n01 kernel: Memory cgroup out of memory: Killed process 4711 (python)\n",
            "the kernel",
        ),
        ("n01: slurmstepd: error: Detected 1 oom_kill event in StepId=12.0.\n", "SLURM"),
        ("(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM)\n", "Ray"),
        ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n", "Ray"),
        ("Warning  Evicted  3m  kubelet  The node was low on resource: memory.\n", "Kubernetes"),
    ],
)
def test_those_who_write_such_lines_are_known(line: str, who: str) -> None:
    verdict = read({"rank_0.log": VICTIM, "node.log": line})
    assert verdict.explanation.kind == "out_of_memory" and f"as {who} reports" in verdict.sentence


WORKER = (
    "ray.exceptions.RayTaskError(KeyError): ray::_RayTrainWorker__execute.get_next() (pid=12451, ip=10.0.0.1, "
    "repr=<ray.train._internal.worker_group.RayTrainWorker object at 0x117751750>)\n"
    f'  File "{SITE}/ray/train/_internal/worker_group.py", line 32, in __execute\n    raise skipped\n'
    '  File "/home/me/fit.py", line 62, in train_func\n    y = batch["label"]\n'
    "KeyError: 'label'\n"
)
DRIVER = (
    "Traceback (most recent call last):\n"
    f'  File "{SITE}/ray/_private/worker.py", line 2524, in get\n    raise value.as_instanceof_cause()\n'
)
REPORT = (
    "\nThe above exception was the direct cause of the following exception:\n\n"
    'Traceback (most recent call last):\n  File "/home/me/drive.py", line 30, in <module>\n    main()\n'
    "ray.train.base_trainer.TrainingFailedError: The Ray Train run failed.\n"
)


@pytest.mark.parametrize(
    "text", [WORKER, DRIVER + WORKER, DRIVER + WORKER + REPORT], ids=["cut", "whole", "reported"]
)
def test_what_ray_passes_on_is_the_workers_own_error(text: str) -> None:
    verdict = read({"job.log": f"(RayTrainWorker pid=12451) epoch 1\n{text}"})
    assert verdict.explanation.kind == OWN_ERROR and "KeyError: 'label', at fit.py:62" in verdict.sentence


def test_of_a_worker_without_a_traceback_the_class_is_known() -> None:
    verdict = read({"job.log": DRIVER + WORKER.splitlines()[0]})
    assert verdict.explanation.facts["error"] == "KeyError"


CUT = (
    "    return self._call_impl(*args, **kwargs)\n"
    f'  File "{SITE}/torch/nn/modules/module.py", line 1747, in _call_impl\n    return forward_call(*args)\n'
    '  File "/home/me/net.py", line 31, in forward\n    return self.head(x[:, self.keep])\n'
    "IndexError: index 40 is out of bounds for dimension 1 with size 32\n"
)


def test_a_traceback_counts_without_its_head() -> None:
    verdict = read({"rank_0.log": VICTIM, "rank_1.log": CUT})
    assert (verdict.explanation.kind, verdict.culprits) == (OWN_ERROR, ("rank 1",))
    assert "at net.py:31" in verdict.sentence


def test_a_line_like_an_exceptions_without_a_traceback_is_none() -> None:
    text = '  File "/home/me/net.py" was read\nNoteError: 3 of 400 samples were left out\nepoch 5\n'
    assert read({"rank_1.log": text}).culprits == ()


UPLOAD = raised("ValueError: bad status 500", "/usr/lib/python3/threading.py", "/home/me/track.py")
LOST = raised("OSError: [Errno 28] No space left on device: '/logs/7'", "/home/me/track.py")


@pytest.mark.parametrize(
    "head", ["Exception in thread Thread-4 (_upload):", "Exception ignored in: <function close>"]
)
@pytest.mark.parametrize("error", [UPLOAD, LOST], ids=["unknown", "known"])
def test_an_exception_beside_the_main_thread_ends_no_rank(head: str, error: str) -> None:
    text = f"epoch 1\n{head}\n{error}epoch 2 loss 0.3\n"
    alone = read({"rank_0.log": text, "rank_1.log": "epoch 1\nepoch 2\n"})
    assert alone.culprits == () and "failed first" not in alone.sentence
    assert alone.explanation.kind == (THREAD_ERROR if error is UPLOAD else "disk_full")
    # Nor does it hide what ended another one.
    both = read({"rank_0.log": text + VICTIM, "rank_1.log": raised("KeyError: 'label'", "/home/me/fit.py")})
    assert both.culprits == ("rank 1",) and both.sentence.endswith("rank 0 only went down with it.")


def test_an_exception_of_the_main_thread_after_one_beside_it_ends_the_rank() -> None:
    text = f"Exception in thread Thread-4 (_upload):\n{UPLOAD}" + raised(
        "KeyError: 'label'", "/home/me/fit.py"
    )
    verdict = read({"rank_0.log": VICTIM, "rank_1.log": text})
    assert verdict.culprits == ("rank 1",) and "KeyError: 'label', at fit.py:10" in verdict.sentence


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("epoch 1 loss 0.5\nerrors: 0, failed samples: 0\nsaved last.pt\n", 0, NO_ERROR),
        ("epoch 1\nFATAL: no license for this node\nbye\n", 2, "unknown"),
        ("epoch 1\nlicense.NoLicenseError: none is left\n", 2, "unknown"),
    ],
)
def test_a_log_without_an_error_says_so(text: str, code: int, kind: str) -> None:
    verdict = read({"job.log": text})
    assert (exit_code(verdict), verdict.explanation.kind, verdict.culprits) == (code, kind, ())
    assert "epoch" not in verdict.explanation.line and "bye" not in verdict.explanation.line


@pytest.mark.parametrize(
    ("how", "kind"),
    [("Exited with exit code 1", OWN_ERROR), ("Killed", "rank_killed"), ("", "job_cancelled")],
)
def test_slurm_that_ends_a_job_because_a_task_failed_is_no_cause(how: str, kind: str) -> None:
    error = raised("KeyError: 'label'", "/home/me/fit.py").replace("\n", "\n1: ").removesuffix("1: ")
    text = f"0: epoch 1\n1: {error}" if kind == OWN_ERROR else "0: epoch 1\n1: epoch 1\n"
    failed = f"srun: error: n01: task 1: {how}\nsrun: Terminating StepId=4711.0\n" if how else ""
    verdict = read({"job.out": f"{text}{failed}{CANCELLED}srun: error: n01: task 0: Terminated\n"})
    assert verdict.explanation.kind == kind, verdict.sentence
    assert verdict.culprits == ({OWN_ERROR: ("rank 1",), "rank_killed": ("task 1",)}.get(kind, ()))


def test_a_launcher_that_is_ended_after_a_failure_is_no_cause() -> None:
    failed = "srun: error: n01: task 1: Exited with exit code 1\n"
    closed = "torch.distributed.elastic.rendezvous.api.RendezvousClosedError\n"
    stopped = "W0203 10:11:12.000 7 api.py:719] Received 15 death signal, shutting down workers\n"
    assert read({"job.out": closed + failed + CANCELLED + stopped}).explanation.kind == "rendezvous_closed"
    assert read({"job.out": closed + stopped + failed}).explanation.kind == "launcher_terminated"


def test_a_program_that_cannot_be_started_is_named_by_who_starts_it() -> None:
    verdict = read({"job.out": "slurmstepd: error: execve(): torchrun: No such file or directory\n"})
    assert verdict.sentence.startswith("A process of the job could not be started")


WORDS = {
    "torch's logger": "E0203 10:11:{0}.013000 204 torch/distributed/elastic/multiprocessing/api.py:732] ",
    "a runner's logger": "ERROR 02-03 10:11:{0} [executor.py:932] ",
    "accelerate test": "stderr: ",
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_a_traceback_counts_behind_the_words_of_a_logger(words: str) -> None:
    lines = CUT.splitlines()
    text = "\n".join(words.format(number + 3) + line for number, line in enumerate(lines))
    verdict = read({"rank_0.log": VICTIM, "rank_1.log": f"epoch 1\n{text}\n"})
    assert verdict.culprits == ("rank 1",) and "at net.py:31" in verdict.sentence
    calm = words.format(59) + "NoteError: 3 of 400 samples were left out\n"
    assert read({"rank_1.log": calm}).culprits == ()


def test_the_box_of_a_traceback_says_the_line() -> None:
    text = (
        "\u256d\u2500 Traceback (most recent call last) \u2500\u256e\n\u2502 /home/me/fit.py:62 in <module>   \u2502\n"
        "\u2502 \u2771 62     y = batch['label']   \u2502\n\u2570\u2500\u2500\u256f\nKeyError: 'label'\n"
    )
    assert "KeyError: 'label', at fit.py:62" in read({"job.log": text}).sentence


def test_what_torch_survived_is_a_warning_unless_something_failed() -> None:
    text = (
        "[W socket.cpp:601] [c10d] The IPv6 network addresses of (localhost, 51595) cannot be retrieved (gai error: "
        "-2 - Name or service not known).\n"
    )
    assert read({"job.log": f"{text}epoch 1\n"}).sentence == "Only warnings that are often harmless."
    failed = f"{text}E0203 api.py:882] failed (exitcode: 1) local_rank: 1 (pid: 7)\n"
    assert read({"job.log": failed}).sentence != "Only warnings that are often harmless."


@pytest.mark.parametrize("prefix", ["[rank1]: ", "(Worker pid=7, ip=10.0.0.1) ", "(pid=7) "])
def test_the_driver_of_ranks_that_waited_is_no_suspect(prefix: str) -> None:
    late = "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation\n"
    verdict = read({"job.log": f"3 workers started\n{prefix}{late}3 workers are ended\n"})
    assert (verdict.explanation.kind, verdict.culprits) == ("receive_timeout", ()), verdict.sentence


def test_a_task_that_fails_because_its_job_was_cancelled_is_innocent() -> None:
    for end in (CANCELLED + "srun: error: n01: task 1: Exited with exit code 1\n", TIME_LIMIT):
        assert read({"job.out": f"epoch 1\n{end}"}).explanation.kind == "job_cancelled"


def _members(ranks: list[int], size: int) -> str:
    return "".join(
        f"Initializing distributed: GLOBAL_RANK: {one}, MEMBER: {one + 1}/{size}\n" for one in ranks
    )


@pytest.mark.parametrize("end", [TIME_LIMIT, CANCELLED])
def test_ranks_that_never_began_are_named(end: str) -> None:
    verdict = read({"job.out": _members([0, 1, 3], 4) + end})
    assert (verdict.explanation.kind, verdict.culprits) == ("ranks_missing", ("rank 2",))
    same = read({"job.out": _members([0, 0], 2) + end})
    assert same.culprits == ("rank 1",) and "each as rank 0 of 2" in same.explanation.cause


@pytest.mark.parametrize(
    "logs",
    [
        {"job.out": _members([0, 1], 2) + "epoch 1\n" + TIME_LIMIT},
        {"job_0.out": _members([0], 2) + TIME_LIMIT},  # of one rank alone
        {"job.out": _members([0, 1, 0, 1], 2) + TIME_LIMIT},  # it began again
        {
            "job.out": _members([0, 1], 4)
            + "All distributed processes registered. Starting with 4\n"
            + TIME_LIMIT
        },
    ],
)
def test_a_job_whose_ranks_all_began_misses_none(logs: dict[str, str]) -> None:
    assert read(logs).explanation.kind == "job_cancelled"


def test_ranks_of_which_the_log_says_nothing_yet_are_not_missed() -> None:
    assert read({"job.out": _members([0, 1], 4)}).explanation.kind == NO_ERROR
