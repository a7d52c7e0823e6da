"""Explains an exception or the text of a log: `pyddpdiag.explain(error)`."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from pyddpdiag.errors import PyddpdiagError
from pyddpdiag.messages import collectives, models, starting, surroundings, tracebacks
from pyddpdiag.messages.message import Message, Role
from pyddpdiag.messages.shells import Line, Shell, iptables, this_shell, write
from pyddpdiag.output import clean

CATALOG: Final[tuple[Message, ...]] = (
    *surroundings.MESSAGES,
    *models.MESSAGES,
    *starting.MESSAGES,
    *collectives.MESSAGES,
)


UNKNOWN: Final = "unknown"
_OURS: Final = "pyddpdiag"
# More than any log that a person wants explained; what failed stands at its end.
MAX_TEXT: Final = 8 * 1024 * 1024
_MAX_INTERESTING = 1024 * 1024
_MAX_LINE = 2000
_MAX_SHOWN = 300
_MAX_FRAMES = 40
_MAX_PER_MESSAGE = 200
# Words of which every message of the catalog has one: the rest of a log, nearly all of it, is not looked at.
_SIGN = re.compile(
    r"error|exception|interrupt|traceback|fail|connect|time ?out|timed|unable|killed|signal|exitcode|expect|mismatch"
    r"|unsupported"
    r"|address|socket|closed|resolve|unknown|memory|memoryerror|oom|nccl|mpi |libuv|params|device|\bgai|name"
    r"|fe80|100[45]\d|110\d\d|rank|initializ|rendezvous|open files|emfile|joined|dll|omp_|module|segmentation|0xc"
    r"|3221|preamble|wait"
    r"|file://|filestore|winerror|route|reach|pipe|sendbytes|recv|only once|monitored"
    r"|file \"|core dumped|space left|argument|pickl|attribute|bootstrapping|graph|scalar type|strides|inplace"
    r"|parameter|ss_family|port (?:must|out)|\bkey|cancelled|evicted|paging|illegal|exited|can't open|create process"
    r"|not found|recogni[sz]ed|terminat|\.py:\d+ in|contiguous|per channel|member|requires_grad|fatal",
    re.IGNORECASE,
)
_RANK = re.compile(r"^\s*\[(?:default|rank)(\d+)\]", re.IGNORECASE)
_LOCAL_RANK = re.compile(r"\brank (\d+)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Explanation:
    """What a message means.

    Attributes:
        kind: of the message, for programs; "unknown" if the catalog does not have it.
        cause: what is behind it.
        fix: what to do about it.
        lines: the fix as lines to paste into the shell that was asked for.
        role: how close the message is to the cause.
        line: what was recognised, as it was printed.
        facts: what stands in it: address, port, interface, rank, timeout_ms and the like.
        position: of the message in the text.
        others: what else the text holds, by importance.
    """

    kind: str
    cause: str
    fix: str
    role: Role = Role.CAUSE
    lines: tuple[str, ...] = ()
    line: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    position: int = 0
    others: tuple[Explanation, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the message was recognised."""
        return self.kind != UNKNOWN

    def __str__(self) -> str:
        parts = [self.cause]
        if self.fix:
            parts.append(f"  hint: {self.fix}")
        parts += [f"    {line}" for line in self.lines]
        return "\n".join(parts)


def explain(error: BaseException | str, *, lines_for: Shell | None = None) -> Explanation:
    """What an exception, or a text such as a log, means, and what to do about it.

    Looks into the exception's causes and notes, too. Of several known messages, the one closest to the cause comes
    first, the rest as its `others`. Never raises for what it does not know: `known` is False then.

    Args:
        error: an exception, or any text.
        lines_for: the shell to write lines to paste for; by default the one that started this process.
    """
    ours = _own(error) if isinstance(error, BaseException) else None
    if ours is not None:
        return ours
    text = error if isinstance(error, str) else text_of(error)
    found = recognise(text, lines_for=lines_for)
    if not found:
        first = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        return Explanation(
            UNKNOWN,
            "This message is not in the catalog.",
            "Look for the first error of the rank that failed first; if it comes from DDP or Gloo, please report it.",
            line=clean(first.strip(), _MAX_SHOWN),
        )
    # One of each kind; of several, the first.
    kinds: dict[str, Explanation] = {}
    for one in found:
        kinds.setdefault(one.kind, one)
    first_one, *rest = sorted(kinds.values(), key=lambda one: (one.role, one.position))
    return replace(first_one, others=tuple(rest))


def text_of(error: BaseException) -> str:
    """The text of an exception with those that led to it and its notes."""
    parts: list[str] = []
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        parts += _frames(one)
        parts.append(f"{type(one).__name__}: {one}")
        parts += [str(note) for note in getattr(one, "__notes__", ())]
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "\n".join(parts)


def _frames(error: BaseException) -> list[str]:
    """Where it was raised, as a traceback says it; the file tells torch's errors from those of other libraries."""
    frames = traceback.extract_tb(error.__traceback__, limit=-_MAX_FRAMES) if error.__traceback__ else []
    lines = [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in frames]
    return [f"{tracebacks.HEAD}:", *lines] if lines else []


def recognise(text: str, *, lines_for: Shell | None = None, around: str = "") -> list[Explanation]:
    """Every known message in a text, in the order of the text.

    `lines_for`: see `explain`. `around`: what else is known of the job, where a message needs more than its own
    words.
    """
    shell = lines_for or this_shell()
    text = condensed(text)
    raised = tracebacks.find(text)
    found: list[Explanation] = []
    taken: list[tuple[int, int]] = []
    for message in CATALOG:
        for count, match in enumerate(message.pattern.finditer(text)):
            if count >= _MAX_PER_MESSAGE or (count == 0 and not _fits(message, text, around)):
                break
            span = _line_around(text, *match.span())
            # A message is one line of the log: whoever stands first in the catalog has it.
            if any(start < span[1] and span[0] < end for start, end in taken):
                continue
            if message.torch_only and not tracebacks.of_torch(text, span, match.start(), raised):
                continue
            if message.raised_in is not None and not tracebacks.passed(message.raised_in, span[0], raised):
                continue
            taken.append(span)
            found.append(_explain(message, match, text[slice(*span)], span[0], shell))
    return sorted(found, key=lambda one: one.position)


def _fits(message: Message, text: str, around: str) -> bool:
    needs = message.needs
    if needs is not None and not needs.search(text) and not needs.search(around):
        return False
    return message.unless is None or not message.unless.search(text)


def condensed(text: str) -> str:
    """What of a log may hold a message: lines that say anything of the kind, cut to a length that no message has."""
    kept: list[str] = []
    size = 0
    # From the end, where what failed stands.
    for line in reversed(text[-MAX_TEXT:].splitlines()):
        if len(line) > _MAX_LINE:
            line = f"{line[: _MAX_LINE // 2]} {line[-_MAX_LINE // 2 :]}"
        if _SIGN.search(line):
            kept.append(line)
            size += len(line)
            if size > _MAX_INTERESTING:
                break
    return "\n".join(reversed(kept))


def _line_around(text: str, start: int, end: int) -> tuple[int, int]:
    before = text.rfind("\n", max(0, start - _MAX_LINE), start) + 1
    after = text.find("\n", end, end + _MAX_LINE)
    return before, (min(len(text), end + _MAX_LINE) if after < 0 else after)


def _explain(message: Message, match: re.Match[str], line: str, position: int, shell: Shell) -> Explanation:
    facts: dict[str, str] = {}
    for name, value in match.groupdict().items():
        if value is not None:
            facts.setdefault(name.partition("__")[0], clean(value, 200))
    facts.update({name: value for name, value in _around(line).items() if name not in facts})
    fix, lines = message.fix, message.lines
    if shell.windows:
        fix = message.windows_fix or fix
        lines = lines if message.windows_lines is None else message.windows_lines
    return Explanation(
        message.kind,
        _with_facts(message.cause, facts),
        _with_facts(fix, facts),
        message.role,
        tuple(_written(lines, facts, shell)),
        clean(line.strip(), _MAX_SHOWN),
        facts,
        position,
    )


def _with_facts(text: str, facts: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: facts.get(match.group(1), match.group(0)), text)


def _around(line: str) -> dict[str, str]:
    """What a line says beside its message: which rank printed it."""
    prefix = _RANK.match(line)
    if prefix is not None:
        return {"reporter": prefix.group(1)}
    named = _LOCAL_RANK.search(line)
    return {"rank": named.group(1)} if named is not None else {}


def _written(lines: tuple[Line, ...], facts: dict[str, str], shell: Shell) -> Iterator[str]:
    facts = {**facts, "iptables": iptables(facts.get("address", ""))}
    for line in lines:
        text = write(line, shell)
        names = re.findall(r"\{(\w+)\}", text)
        # Facts come from a log: only what cannot be anything but an address, a name or a number goes into a command.
        if text and all(re.fullmatch(r"[\w.:%-]+", facts.get(name, "")) for name in names):
            yield re.sub(r"\{(\w+)\}", lambda match: facts[match.group(1)], text)


def _own(error: BaseException) -> Explanation | None:
    """Errors of this package explain themselves; None for others."""
    if not isinstance(error, PyddpdiagError):
        return None
    return Explanation(_OURS, error.message, error.hint, line=clean(error.message, _MAX_SHOWN))
