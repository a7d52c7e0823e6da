"""The programs that sums in shared memory are compared with: each is built, runs round by round, and ends."""

import pytest
from harness import programs, sums


@pytest.mark.parametrize("name", sums.OTHERS)
def test_rounds_take_time_and_the_program_ends(name: str) -> None:
    if why := programs.why_not(name):
        pytest.skip(why)
    # To compile the core again takes a minute or two; what matters here is that the program works.
    built = programs.TESTED_CORE if programs.TESTED_CORE.exists() else None
    with programs.running(name, 2**20, 2, core_library=built) as program:
        seconds = [program.round() for _ in range(3)]
        process = program.process
    assert all(0.0 < value < 60.0 for value in seconds)
    assert process.returncode == 0


def test_a_program_that_has_ended_is_an_error() -> None:
    if why := programs.why_not(programs.LIMIT):
        pytest.skip(why)
    built = programs.TESTED_CORE if programs.TESTED_CORE.exists() else None
    with programs.running(programs.LIMIT, 2**20, 2, core_library=built) as program:
        program.process.kill()
        with pytest.raises(RuntimeError, match="ended with"):
            program.round()
            program.round()


def test_what_is_not_installed_is_named_with_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "mpicxx.mpich" in programs.why_not(programs.MPICH)
    assert "apt-get install mpich" in programs.why_not(programs.MPICH)
    assert programs.why_not(sums.GLOO) == ""
