"""Parts of logs as people post them: tracebacks, prefixes of ranks, summaries of launchers."""

from dataclasses import dataclass

SITE = "/opt/venv/lib/python3.11/site-packages"
SUMMARY = "=" * 60
VICTIM = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:54168"
)


@dataclass(frozen=True)
class Report:
    """A log, and what is right.

    Attributes:
        about: the public report, and what had happened.
        logs: by the names of files.
        kind: of the message that decides.
        culprits: whom to name; None where nobody can be named.
    """

    about: str
    logs: dict[str, str]
    kind: str
    culprits: tuple[str, ...] = ()


def torchrun(*ends: tuple[int, int], says: str = "To enable traceback see: https://pytorch.org/docs") -> str:
    """torchrun's summary: (rank, exit code) of the first failure, then of the others."""

    def block(place: int, rank: int, code: int) -> str:
        names = {-6: "SIGABRT", -7: "SIGBUS", -9: "SIGKILL", -11: "SIGSEGV", -15: "SIGTERM"}
        text = f"Signal {-code} ({names[code]}) received by PID {700 + rank}" if code in names else says
        return (
            f"[{place}]:\n  time      : 2026-02-03_10:11:12\n  host      : node-a\n"
            f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {700 + rank})\n"
            f"  error_file: <N/A>\n  traceback : {text}\n"
        )

    first, *others = ends
    failures = "".join(block(i + 1, *end) for i, end in enumerate(others)) or "  <NO_OTHER_FAILURES>\n"
    return (
        f"E0203 10:11:12.000 690 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: {first[1]}) "
        f"local_rank: {first[0]} (pid: {700 + first[0]}) of binary: /opt/venv/bin/python\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        f'  File "{SITE}/torch/distributed/launcher/api.py", line 263, in launch_agent\n    raise ChildFailedError(\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{SUMMARY}\nfit.py FAILED\n{'-' * 60}\nFailures:\n{failures}{'-' * 60}\n"
        f"Root Cause (first observed failure):\n{block(0, *first)}{SUMMARY}\n"
    )


def raised(error: str, *files: str) -> str:
    """A traceback that ends with an error."""
    frames = "".join(f'  File "{file}", line {10 + at}, in step\n    go()\n' for at, file in enumerate(files))
    return f"Traceback (most recent call last):\n{frames}{error}\n"


def prefixed(prefix: str, text: str) -> str:
    """The text with a prefix before each line."""
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def spawned(rank: int, error: str) -> str:
    """What the parent of mp.spawn prints when a rank raises."""
    return (
        raised(
            f"torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process {rank} terminated with the following "
            "error:",
            "/home/me/fit.py",
            f"{SITE}/torch/multiprocessing/spawn.py",
        )
        + error
        + "\n"
    )
