"""What the machines of a run know and nobody else, so that they can gather its files.

The ranks agree on it through their process group's store, and hand it over to the `pyddpdiag run` above them, in a
folder that only its user may read and that is removed when its command has ended. It is in no trace, sidecar or report.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyddpdiag.system.replaced_files import replace

FOLDER: Final = "PYDDPDIAG_RUN_GATHER"
"""The environment variable that names the folder; without it nobody asks for a secret."""

BYTES: Final = 16
_TEXT: Final = re.compile(rb"[0-9a-f]{%d}" % (2 * BYTES))
_NAME: Final = re.compile(r"secret_([0-9]{1,9})")


def is_wanted() -> bool:
    """Whether a `pyddpdiag run` above this process gathers."""
    return bool(os.environ.get(FOLDER))


def hand_over(text: bytes, attempt: int) -> None:
    """Leaves the secret, in hexadecimal digits, for the command above.

    `text`: of this attempt of the job; each rank of the machine leaves the same. `attempt`: how often a launcher had
    restarted the ranks.
    """
    target = Path(os.environ[FOLDER], f"secret_{attempt}")
    beside = target.with_name(f"{target.name}.{os.getpid()}")
    # Without it the training goes on, and the traces stay where they are.
    with suppress(OSError):
        beside.write_bytes(text)
        replace(beside, target)


def handed_over(folder: Path) -> tuple[bytes, ...]:
    """The secrets that ranks have left, the first attempt's first; none: no rank came as far as its recorder."""
    found = {}
    with suppress(OSError):
        for path in folder.iterdir():
            name = _NAME.fullmatch(path.name)
            text = path.read_bytes() if name else b""
            if name and _TEXT.fullmatch(text):
                found[int(name[1])] = bytes.fromhex(text.decode())
    return tuple(found[attempt] for attempt in sorted(found))
