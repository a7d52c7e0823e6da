"""Dataclasses as JSON and back: their fields say what stands in a file, for who writes it and who reads it.

A field's name is the key, its type what the value must be, and `Annotated` adds what else there is to know. A reader
trusts nothing. What is missing is the field's default. Where something does not fit, or the object's `sound` is false,
there is no such object; if its class is `forgiving`, it is only that field that has its default then. Of tables and of
lists of objects, what does not fit is left out.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from itertools import repeat
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from pyddpdiag.model.untrusted import needed_number, needed_text, needed_whole

T = TypeVar("T")

MISFITS: Final = (TypeError, ValueError, LookupError, AttributeError, OverflowError)
"""What reading something may raise."""

_LETTERS: Final = 300
_ENTRIES: Final = 64


@dataclass(frozen=True)
class Limit:
    """Below it is a number. So long is a text, a table or a list of objects at most, and cut there; other lists do not
    fit if they are longer.
    """

    most: float


@dataclass(frozen=True)
class Key:
    """The key, where it is not the field's name."""

    name: str


@dataclass(frozen=True)
class Form:
    """A value of another form in the file. `read` may raise `MISFITS`."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def exit_code(raw: Any) -> int:
    """A process's exit code, which may be negative.

    Raises:
        TypeError: it is none.
    """
    if type(raw) is not int:
        raise TypeError("no exit code")
    return raw


Code = Annotated[int, Form(int, exit_code)]
"""An exit code of 32 bits, with or without a sign."""

IF_ANY: Final = "if any"
"""The field is left out of the file where it is its default."""

INLINE: Final = "inline"
"""The object has no key of its own; its fields stand among those of the object that has it."""

ELSEWHERE: Final = "elsewhere"
"""The field is not written, and given to `read`."""


@dataclass(frozen=True)
class _Row:
    """A field of a dataclass."""

    field: Field[Any]
    hint: Any
    key: str
    marks: tuple[Any, ...]

    def is_default(self, value: object) -> bool:
        made = self.field.default_factory
        return bool(value == (self.field.default if made is MISSING else made()))

    @property
    def needed(self) -> bool:
        return self.field.default is MISSING and self.field.default_factory is MISSING


@cache
def _table(kind: Any) -> tuple[_Row, ...]:
    hints = get_type_hints(kind, include_extras=True)
    rows = []
    for field in fields(kind):
        _, marks, _ = _bare(hints[field.name])
        key = next((each.name for each in marks if isinstance(each, Key)), field.name)
        rows.append(_Row(field, hints[field.name], key, marks))
    return tuple(rows)


@cache
def _bare(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """A type without `Annotated` and None, what was said with it, and whether it may be None."""
    if get_origin(hint) is Annotated:
        kind, _, maybe = _bare(get_args(hint)[0])
        return kind, hint.__metadata__, maybe
    inner = get_args(hint)
    if types.NoneType in inner and len(inner) == 2:
        kind, marks, _ = _bare(inner[0])
        return kind, marks, True
    return hint, (), False


def to_json(value: Any) -> dict[str, Any]:
    """A dataclass, to be dumped as JSON."""
    found: dict[str, Any] = {}
    for row in _table(type(value)):  # type: ignore[arg-type]
        inside = getattr(value, row.field.name)
        if ELSEWHERE in row.marks or (IF_ANY in row.marks and row.is_default(inside)):
            continue
        written = _write(row.hint, inside)
        found |= written if INLINE in row.marks else {row.key: written}
    return found


def _write(hint: Any, value: Any) -> Any:
    kind, marks, _ = _bare(hint)
    if value is None:
        return None
    for each in marks:
        if isinstance(each, Form):
            return each.write(value)
    if is_dataclass(value):
        return to_json(value)
    inner = get_args(kind)
    if isinstance(value, Mapping):
        return {str(key): _write(inner[1], each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_write(inner[0], each) for each in value]
    return value


def from_json(kind: type[T], raw: Any, **given: Any) -> T:
    """The dataclass `kind` from a parsed JSON object; `given` are fields that do not stand in it.

    Raises:
        TypeError, ValueError, and the rest of `MISFITS`: it is no such object.
    """
    if not isinstance(raw, Mapping):
        raise TypeError("no object")
    found = dict(given)
    for row in _table(kind):  # type: ignore[arg-type]
        if row.field.name in given or not (row.needed or row.key in raw):
            continue
        try:
            found[row.field.name] = _read(row.hint, raw if INLINE in row.marks else raw[row.key])
        except MISFITS:
            if row.needed or not getattr(kind, "forgiving", False):
                raise
    made = kind(**found)
    if not getattr(made, "sound", True):
        raise ValueError("what it says cannot be")
    return made


def maybe_from_json(kind: type[T], raw: Any, **given: Any) -> T | None:
    """As `from_json`; None: it is no such object."""
    try:
        return from_json(kind, raw, **given)
    except MISFITS:
        return None


def _read(hint: Any, raw: Any) -> Any:
    kind, marks, maybe = _bare(hint)
    if raw is None and maybe:
        return None
    limit = None
    for each in marks:
        if isinstance(each, Form):
            return each.read(raw)
        limit = each.most if isinstance(each, Limit) else limit
    if kind is int:
        return needed_whole(raw, int(limit or 2**63))
    if kind is str:
        return needed_text(raw, int(limit or _LETTERS))
    if kind is float:
        return needed_number(raw, limit or 1e12)
    if is_dataclass(kind):
        return from_json(kind, raw)  # type: ignore[arg-type]
    inner, most = get_args(kind), int(limit or _ENTRIES)
    if get_origin(kind) is tuple:
        return _sequence(inner, raw, most)
    if get_origin(kind) is Mapping:
        return _mapping(inner[0], inner[1], raw, most)
    if get_origin(kind) is Literal:
        return inner[inner.index(raw)]
    if isinstance(kind, types.UnionType):
        return _read(next(each for each in inner if isinstance(raw, each)), raw)
    if not isinstance(raw, kind):
        raise TypeError("another type")
    return raw


def _sequence(inner: tuple[Any, ...], raw: Any, most: int) -> tuple[Any, ...]:
    if not isinstance(raw, list) or (inner[-1] is not Ellipsis and len(raw) != len(inner)):
        raise TypeError("no such list")
    if not is_dataclass(inner[0]):
        if len(raw) > most:
            raise ValueError("a huge list")
        hints = inner if inner[-1] is not Ellipsis else repeat(inner[0])
        return tuple(_read(hint, each) for hint, each in zip(hints, raw, strict=False))
    found = (maybe_from_json(inner[0], each) for each in raw[:most])  # type: ignore[arg-type]
    return tuple(each for each in found if each is not None)


def _mapping(key: Any, value: Any, raw: Any, most: int) -> dict[Any, Any]:
    found = {}
    for name, each in list(raw.items())[:most]:
        try:
            found[needed_whole(int(name[:12])) if key is int else _read(key, name)] = _read(value, each)
        except MISFITS:
            continue
    return found
