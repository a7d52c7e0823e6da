"""Messages of ranks that a script starts by itself: torch.multiprocessing, notebooks, scripts without a main guard."""

from __future__ import annotations

import re

from pyddpdiag.messages.message import Message, text_pattern
from pyddpdiag.messages.shells import Run

_SAVING = re.compile(r"torch[/\\]serialization\.py|joblib|copy\.py\", line|in save_checkpoint")

MESSAGES: tuple[Message, ...] = (
    Message(
        "main_guard",
        text_pattern(
            r"start a new process before the(?: current process has finished its bootstrapping phase)?\s*$",
            r"finished its bootstrapping phase",
        ),
        "Each new process imports the script, and the script starts processes again: it has no main guard. Windows "
        "and macOS start every process this way, loader workers too.",
        "Put the code that starts ranks or loader workers under: if __name__ == '__main__':",
        lines=(Run("torchrun --nproc-per-node 2 SCRIPT.py"),),
    ),
    Message(
        "spawn_from_notebook",
        text_pattern(r"Can't get attribute '(?P<name>[^']+)' on <module '__main__'"),
        "A new process cannot find the function or class that it is to run: it was defined in a notebook or an "
        "interactive session, which the new process does not have.",
        "Put it into a file and import it from there, or turn the notebook into a script and start that.",
        lines=(
            Run("jupyter nbconvert --to script NOTEBOOK.ipynb"),
            Run("torchrun --nproc-per-node 2 NOTEBOOK.py"),
        ),
    ),
    Message(
        "spawn_not_picklable",
        text_pattern(
            r"Can't (?:pickle|get) local object '(?P<name>[^']+)'",
            r"Can't pickle <(?:function|class)[^\n]*",
            r"[Cc]an(?:no|')t pickle '?_?[\w.]+'? objects?",
        ),
        "What a new process is to run or gets as an argument cannot be sent to it: a lambda, a function or class "
        "within a function, an open file, a lock or a process group. Windows and macOS send datasets to loader "
        "workers, too.",
        "Define it at the top level of a file, and create files, locks and groups in the new process; or start the "
        "ranks with torchrun.",
        lines=(Run("torchrun --nproc-per-node 2 SCRIPT.py"),),
        unless=_SAVING,
    ),
)
