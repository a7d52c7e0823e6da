"""Messages of which only the class is known: they count where no other message has their line."""

from __future__ import annotations

from pyddpdiag.messages.message import Message, Role, text_pattern
from pyddpdiag.messages.shells import SetVariable

MESSAGES: tuple[Message, ...] = (
    Message(
        "rank_aborted",
        text_pattern(
            r"exitcode *: *-6\b|Signal 6 \(SIGABRT\)|signal SIGABRT|exited on signal 6\b|3221226505|0xC0000409",
            r"terminat(?:e called after throwing an instance of|ing (?:due to|with) uncaught exception of type)"
            r" '?(?P<class>\w++(?:::\w++)*+)"
            r"(?!'?\s*what\(\):[^\n]*(?:Broken pipe|Connection (?:reset|closed)))(?:'\s*what\(\):[^\n]*)?",
        ),
        "A rank aborted in native code: an error was raised where nothing could catch it, such as on Gloo's own "
        "thread. Its log names the error after 'terminate called', or 'terminating'.",
        "Read the rank's own output from before the abort. PYTHONFAULTHANDLER=1 prints the Python line.",
        lines=(SetVariable("PYTHONFAULTHANDLER", "1"),),
    ),
    Message(
        "store_failed",
        text_pattern(r"\bDistNetworkError(?:: |$)"),
        "This rank could not reach the store at rank 0, or lost it, and the message does not say why. On Windows, most "
        "likely the name in MASTER_ADDR stands for an address that no interface has.",
        "Give a real address of rank 0's machine as MASTER_ADDR (127.0.0.1 if all ranks are here), and read the log of "
        "rank 0.",
        role=Role.NETWORK,
        lines=(SetVariable("MASTER_ADDR", "127.0.0.1"),),
    ),
)
