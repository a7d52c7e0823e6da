"""The settings that a trial compares, and which of them keep the training's bits."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from pyddpdiag.cures.names import Named
from pyddpdiag.cures.options import Cures, divides_exactly, layout_of, with_layout
from pyddpdiag.cures.trial_options import DEFAULT, named_of
from pyddpdiag.model.trial import TODAY, TriedCure
from pyddpdiag.paths.options import Compress, PathRequest

_SMALLEST_MIB: Final = 0.05
_PARTS: Final = (1, 2, 4, 16)


@dataclass(frozen=True)
class Setting:
    """One setting of a module.

    Attributes:
        path: how buckets are summed.
        bucket_caps_mb: one for all buckets, or one for each; empty: as the script has it.
        views: `gradient_as_bucket_view`; None: as the script has it.
    """

    path: PathRequest
    bucket_caps_mb: tuple[float, ...] = ()
    views: bool | None = None

    @property
    def layout(self) -> tuple[tuple[float, ...], bool | None]:
        """What a change of needs a new reducer."""
        return self.bucket_caps_mb, self.views


@dataclass(frozen=True)
class Module:
    """What decides which settings are possible, alike on all ranks.

    Attributes:
        path: that it has.
        ranks: of its group.
        one_host: whether all of them are on one host.
        gradient_bytes: of all its parameters that are reduced.
        dtypes: of these, by torch's names.
        bucket_cap_mb: that it has.
        default_cap: whether that is torch's own, whose first bucket is smaller.
        views: whether gradients are views already.
        keeps_layout: whether a new reducer has the buckets of the old one from its first pass on.
        no_rebuild: why no new reducer can be made; empty: it can.
        parameter_bytes: of each parameter that is reduced, in their order; empty: not known.
    """

    path: PathRequest
    ranks: int
    one_host: bool
    gradient_bytes: int
    dtypes: frozenset[str]
    bucket_cap_mb: float
    default_cap: bool
    views: bool
    keeps_layout: bool
    no_rebuild: str = ""
    parameter_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A setting with its name and the options of `pyddpdiag run` for it."""

    setting: Setting
    cure: TriedCure


def candidates(names: Sequence[str], module: Module) -> tuple[Candidate, list[Candidate]]:
    """Today's setting and the others, in the order in which they were named.

    Args:
        names: as `Trial.cures`; empty: the defaults, each where it keeps the bits.
        module: on which they are tried.

    Returns:
        Those that cannot or may not be tried have `left` set.
    """
    today = Setting(module.path)
    found: list[Candidate] = []
    for name in dict.fromkeys(names or DEFAULT):
        of_each = [_of_name(one, module) for one in named_of(name)]
        for parts in itertools.product(*of_each):
            each = _together(parts, module)
            left = each.cure.left
            if not left and each.setting.layout != today.layout:
                left = module.no_rebuild
            if not left and not names and not each.cure.same_bits:
                left = f"it changes the training's bits here; --cures {name} tries it"
            found.append(replace(each, cure=replace(each.cure, left=left)))
    return Candidate(today, TriedCure(TODAY, options_of(module.path))), found


def options_of(path: PathRequest) -> Mapping[str, str]:
    """Those of `pyddpdiag run` that ask for a path."""
    return dict(_asked(path).options())


_LANES: Final = "its buckets go over several interfaces, which a trial does not change"


def _together(parts: Sequence[Candidate], module: Module) -> Candidate:
    """A setting that has all of them. Each changes another field of today's setting."""
    if len(parts) == 1:
        return parts[0]
    path, views = module.path, None
    caps: tuple[float, ...] = ()
    for part in parts:
        changed = {
            one.name: getattr(part.setting.path, one.name)
            for one in fields(path)
            if getattr(part.setting.path, one.name) != getattr(module.path, one.name)
        }
        path = replace(path, **changed)
        caps = part.setting.bucket_caps_mb or caps
        views = views if part.setting.views is None else part.setting.views
    options = {name: value for part in parts for name, value in part.cure.options.items()}
    cure = TriedCure(
        " + ".join(part.cure.name for part in parts),
        options,
        all(part.cure.same_bits for part in parts),
        left=next((f"{part.cure.name}: {part.cure.left}" for part in parts if part.cure.left), ""),
    )
    return Candidate(Setting(path, caps, views), cure)


def _of_name(one: Named, module: Module) -> list[Candidate]:
    name = one.name
    if name == "shared-memory":
        exact = module.dtypes <= {"float32", "float64"} and module.one_host and module.path.compress is None
        exact = exact and divides_exactly(module.ranks)
        had = "the ranks average in shared memory already" if module.path.shared_memory != "off" else ""
        had = had or _LANES if module.path.lanes else had
        path = replace(module.path, lanes=(), shared_memory="require")
        return [_candidate("shared memory", Setting(path), _asked(path, auto=True), exact, had)]
    if name == "views":
        exact = module.ranks <= 2 or (module.keeps_layout and divides_exactly(module.ranks))
        had = "gradients are views of the buckets already" if module.views else ""
        cures = replace(_asked(module.path), gradient_as_bucket_view=True)
        return [_candidate("views", Setting(module.path, views=True), cures, exact, had)]
    if one.value:
        return [_of_sizes(layout_of(one.value), module)]
    if name == "buckets":
        return [_of_sizes((size,), module) for size in bucket_sizes(module)] or [
            _candidate(
                "buckets",
                Setting(module.path),
                _asked(module.path),
                True,
                "the gradients fit one small bucket, so that other sizes change nothing",
            )
        ]
    kind: Compress = "fp16" if name == "compress-fp16" else "bf16"
    path = replace(module.path, lanes=(), compress=kind, error_feedback=name == "error-feedback")
    had = "gradients travel like that already" if path == module.path else _LANES if module.path.lanes else ""
    label = kind + (" with error feedback" if path.error_feedback else "")
    return [_candidate(label, Setting(path), _asked(path), False, had)]


def bucket_sizes(module: Module) -> list[float]:
    """Caps in MiB that give other layouts than today's: one bucket for all gradients, and parts of them."""
    total = module.gradient_bytes / 2**20
    sizes: list[float] = []
    first_cap = 2**20 if module.default_cap else module.bucket_cap_mb * 2**20
    offered = {_buckets_of(module, first_cap, module.bucket_cap_mb * 2**20)}
    for part in _PARTS:
        # A little more, so that all of them fit one bucket.
        size = float(f"{1.01 * total / part:.2g}") if part > 1 else float(f"{1.1 * total:.2g}")
        alike = 0.8 < size / module.bucket_cap_mb < 1.25
        one_already = part == 1 and not module.default_cap and module.bucket_cap_mb >= total
        layout = _buckets_of(module, size * 2**20, size * 2**20)
        fits = size >= _SMALLEST_MIB and not alike and not one_already and size not in sizes
        if fits and (not layout or layout not in offered):
            sizes.append(size)
            offered.add(layout)
    return sizes


def _buckets_of(module: Module, first_cap: float, cap: float) -> tuple[int, ...]:
    """The buckets' bytes with these caps, as DDP fills them from the last parameter on; empty: not known.

    DDP closes a bucket when it has reached its cap. It keeps one for each type, which this does not follow.
    """
    if len(module.dtypes) > 1:
        return ()
    found: list[int] = []
    filled = 0
    for one in reversed(module.parameter_bytes):
        filled += one
        if filled >= (cap if found else first_cap):
            found.append(filled)
            filled = 0
    return (*found, filled) if filled else tuple(found)


def _of_sizes(sizes: tuple[float, ...], module: Module) -> Candidate:
    text = ", ".join(f"{size:g}" for size in sizes)
    return _candidate(
        f"buckets of {text} MiB",
        Setting(module.path, bucket_caps_mb=sizes),
        with_layout(_asked(module.path), sizes),
        module.ranks <= 2 and module.path.compress is None,
    )


def _candidate(name: str, setting: Setting, cures: Cures, same_bits: bool, left: str = "") -> Candidate:
    return Candidate(setting, TriedCure(name, cures.options(), same_bits, left=left))


def _asked(path: PathRequest, *, auto: bool = False) -> Cures:
    mode = "auto" if auto and path.shared_memory == "require" else path.shared_memory
    return Cures(
        shared_memory=mode, compress=path.compress, error_feedback=path.error_feedback, lanes=path.lanes
    )


__all__ = ["Candidate", "Module", "Setting", "bucket_sizes", "candidates", "options_of"]
