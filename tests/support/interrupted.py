"""A command for `pyddpdiag run` to be interrupted in. It needs no torch. A process says by a file that it is there.

Arguments: how it behaves.

- "waits": for two processes of multiprocessing, as `torch.multiprocessing.spawn` does.
- "ignores": all signals to stop, and so do its children. One has a session of its own, as torchrun's have.
- "counts": SIGINT, says how often it came, and exits with 7.
- "leaves HOW": two processes behind, of which one has a session and an environment of its own. It ends by an exit code,
  an "error", or as "killed".
- "rank": is one itself.
- "terminal COMMAND": presses Ctrl-C in a terminal in which the command runs.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

CHILDREN = 2


def rank(*ignored: int) -> None:
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    Path(f"ready-{os.getpid()}").touch()
    time.sleep(90)  # nobody may end it


def waits() -> None:
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=rank) for _ in range(CHILDREN)]
    for child in children:
        child.start()
    for child in children:
        child.join()


def ignores() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "rank", *map(str, map(int, numbers))], start_new_session=apart
        )
        for apart in (False, True)
    ]
    for child in children:
        child.wait()


def leaves(how: str) -> None:
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYDDPDIAG")}
    for environ in (None, alone):
        subprocess.Popen(
            [sys.executable, __file__, "rank"], env=environ, start_new_session=environ is not None
        )
    while len(list(Path().glob("ready-*"))) < CHILDREN:
        time.sleep(0.05)
    if how == "error":
        raise ValueError(how)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(int(how))


def counts() -> None:
    came = []
    signal.signal(signal.SIGINT, lambda *_: came.append(1))
    Path(f"ready-{os.getpid()}").touch()
    while not came:
        time.sleep(0.05)
    time.sleep(0.5)
    print(f"SIGINT came {len(came)} times", flush=True)
    sys.exit(7)


def terminal(*command: str) -> int:
    import pty

    pid, keyboard = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    while not list(Path().glob("ready-*")):
        time.sleep(0.05)
    os.write(keyboard, b"\x03")
    with suppress(OSError):  # once nobody holds the other end
        while shown := os.read(keyboard, 4096):
            sys.stdout.write(shown.decode())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    if sys.argv[1] == "terminal":
        sys.exit(terminal(*sys.argv[2:]))
    elif sys.argv[1] == "rank":
        rank(*map(int, sys.argv[2:]))
    elif sys.argv[1] == "leaves":
        leaves(sys.argv[2])
    else:
        {"waits": waits, "ignores": ignores, "counts": counts}[sys.argv[1]]()
