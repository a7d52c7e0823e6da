"""`pyddpdiag ...` or a script in a fork that has torch already, for a test of what it says and does.

Whatever is about its own process (signals to it, its children, how it starts) needs a real start.
"""

import io
import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

from support.forks import context, take_environment


@dataclass(frozen=True)
class Forked:
    """A command that runs, and the files that it writes to."""

    process: BaseProcess
    out: Path
    err: Path

    def ended(self, timeout_s: float) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        self.process.join(timeout_s)
        said = [path.read_text(encoding="utf-8") for path in (self.out, self.err)]
        code = self.process.exitcode
        assert code is not None, f"not ended in {timeout_s} s: {said}"
        return code, said[0], said[1]


@contextmanager
def forked(options: tuple[object, ...], cwd: Path, variables: Mapping[str, str]) -> Iterator[Forked]:
    """Starts `pyddpdiag` with these options, or a script; the process is gone after the block, and with it its ranks.

    Args:
        options: the first is a path that ends in .py where it is a script.
        cwd: the folder to start it in.
        variables: its environment.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as said:
        out, err = Path(said, "out"), Path(said, "err")
        words = [str(option) for option in options]
        process = context().Process(target=_main, args=(words, str(cwd), dict(variables), str(out), str(err)))
        process.start()
        try:
            yield Forked(process, out, err)
        finally:
            process.kill()
            process.join()


def _main(words: list[str], cwd: str, variables: dict[str, str], out: str, err: str) -> None:
    take_environment(variables)
    os.chdir(cwd)
    for path, number in ((out, 1), (err, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(number, "w"), encoding="utf-8") for number in (1, 2))
    # Its ranks are forks as well, and of itself: the fork server serves only who started it.
    forks = multiprocessing.get_context("spawn" if sys.platform == "win32" else "fork")
    if words[0].endswith(".py"):
        import torch.multiprocessing

        start = torch.multiprocessing.start_processes
        torch.multiprocessing.spawn = partial(start, start_method=forks.get_start_method())
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")
        return
    from pyddpdiag.cli import main
    from pyddpdiag.ranks import process

    process.multiprocessing = SimpleNamespace(get_context=lambda _: forks)  # type: ignore[assignment]
    sys.argv = ["pyddpdiag", *words]
    sys.exit(main(words))
