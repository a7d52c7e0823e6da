"""Which rank is to blame, and in which words."""

from __future__ import annotations

import signal

import pytest

from pyddpdiag.errors import TrainError
from pyddpdiag.ranks.failure import Trouble, blame, describe, describe_exit, short

RESET = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Read error [127.0.0.1]:3468: Connection "
    "reset by peer. This is typically caused by a remote worker crashing."
)
LATE = "[../gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation"


def failed(rank: int, at: float, error: BaseException) -> Trouble:
    try:
        raise error
    except BaseException as caught:
        return Trouble(rank, at, failure=describe(caught, rank))


@pytest.mark.parametrize(
    ("error", "connection", "timeout"),
    [
        (RuntimeError(RESET), True, False),
        (RuntimeError("Connection closed by peer [127.0.0.1]:2000"), True, False),
        (RuntimeError("Broken pipe"), True, False),
        (ConnectionResetError(104, "whatever this system calls it"), True, False),
        (RuntimeError("An existing connection was forcibly closed by the remote host"), True, False),
        (RuntimeError(LATE), False, True),
        (
            RuntimeError("[../gloo/transport/tcp/pair.cc:583] Application timeout caused pair closure"),
            False,
            True,
        ),
        (TimeoutError("the download took too long"), False, False),
        (RuntimeError("DataLoader timed out after 5 seconds"), False, False),
        (RuntimeError("unexpected end of file in digits.pt"), False, False),
        (ValueError("connection reset by peer is what the label says"), False, False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False, False),
        (MemoryError(), False, False),
        (TrainError("timed out"), False, False),
    ],
)
def test_network_errors_are_distinguished_from_others(
    error: BaseException, connection: bool, timeout: bool
) -> None:
    failure = describe(error, 3)
    assert (failure.connection, failure.timeout) == (connection, timeout)
    assert failure.secondary == (connection or timeout)


def test_own_errors_come_without_traceback_but_with_their_hint() -> None:
    failure = describe(TrainError("No digits.", hint="pip install digits"), 0)
    assert (failure.traceback, failure.message, failure.hint) == ("", "No digits.", "pip install digits")


def test_long_tracebacks_are_cut_in_the_middle() -> None:
    trouble = failed(0, 0, ValueError("x" * 100_000 + "the end"))
    assert trouble.failure is not None
    assert len(trouble.failure.traceback) < 13_000
    assert trouble.failure.traceback.startswith("Traceback")
    assert trouble.failure.traceback.endswith("the end")


def test_the_cause_is_blamed_although_a_victim_spoke_first() -> None:
    error = blame(
        [
            failed(0, 1.0, RuntimeError(RESET)),
            failed(2, 1.1, RuntimeError(RESET)),
            Trouble(1, 1.2, exit_code=-9),
        ]
    )
    first, *others = error.message.splitlines()
    # Windows has no name for it.
    name = f" ({signal.Signals(9).name})" if 9 in [int(one) for one in signal.Signals] else ""
    assert first == f"rank 1 was killed by signal 9{name}."
    assert error.rank == 1
    assert others == [
        f"  rank {r} went down with it: Read error [127.0.0.1]:3468: Connection reset by peer" for r in (0, 2)
    ]


def test_the_earliest_of_two_causes_is_blamed_and_the_other_is_named() -> None:
    error = blame([failed(0, 2.0, ValueError("late")), failed(1, 1.0, KeyError("early"))])
    assert error.rank == 1
    assert error.message.splitlines() == [
        "rank 1 failed with KeyError: 'early'",
        "  also: rank 0 failed with ValueError: late",
    ]
    assert error.details.startswith("Traceback") and error.details.endswith("KeyError: 'early'")


def test_nobody_is_named_where_every_error_is_that_of_a_victim() -> None:
    error = blame([failed(1, 2.0, RuntimeError(RESET)), failed(0, 1.0, RuntimeError(RESET))])
    first, second, *others = error.message.splitlines()
    assert first == "rank 0 failed with RuntimeError: Read error [127.0.0.1]:3468: Connection reset by peer"
    assert "which rank failed first is unknown" in second
    assert [line[:26] for line in others] == ["  rank 1 went down with it"]
    assert error.rank is None
    assert error.details.startswith("Traceback")
    assert "pyddpdiag report" in error.hint


def test_survivors_that_said_nothing_are_named_beside_the_one_that_died() -> None:
    died = Trouble(1, 1.0, exit_code=1)
    assert blame([died], {}, [0]).message.splitlines() == [
        "rank 1 ended with exit code 1 and no error message.",
        "  rank 0 had noticed nothing yet and was ended.",
    ]
    error = blame([died, failed(3, 1.1, RuntimeError(RESET))], {}, [0, 2])
    assert error.message.splitlines()[-1] == "  ranks 0, 2 had noticed nothing yet and were ended."
    assert error.rank == 1


def test_a_silent_rank_is_blamed_when_others_waited_in_vain() -> None:
    late = [failed(0, 1.0, RuntimeError(LATE)), failed(1, 1.0, RuntimeError(LATE))]
    error = blame(late, {2: '  File "train.py", line 3, in load'})
    assert error.rank == 2
    assert error.message.startswith("rank 2 did not take part in time")
    assert "line 3, in load" in error.details
    assert "did not even answer" in blame(late, {2: ""}).hint


def test_a_silent_rank_is_not_blamed_for_a_failure_of_another() -> None:
    assert blame([failed(0, 1.0, ValueError("mine"))], {1: "stack"}).rank == 0


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (-signal.SIGTERM, "signal 15 (SIGTERM)"),
        (-200, "signal 200."),
        (7, "exit code 7 and no error message"),
        (0, "exit code 0 before its job was done"),
        (0xC0000005, "exit code 0xC0000005 (access violation) and no error message"),
    ],
)
def test_exit_codes_in_words(code: int, text: str) -> None:
    assert text in describe_exit(4, code)
    assert describe_exit(4, code).startswith("rank 4 ")


def test_short_drops_source_positions_and_limits_length() -> None:
    assert short(RESET) == "Read error [127.0.0.1]:3468: Connection reset by peer"
    assert short("") == ""
    assert len(short("y" * 500, 50)) == 50
