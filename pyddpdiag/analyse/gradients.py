"""Findings about the gradients themselves: not finite, or not the same sum on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.names import Names
from pyddpdiag.model import Finding
from pyddpdiag.model.words import count, listed
from pyddpdiag.trace.layout import Flag, GradientValue, Kind, Records
from pyddpdiag.trace.run import Run


def find_gradients(run: Run, names: Names) -> list[Finding]:
    """What the gradient records of watched passes tell."""
    by_rank = {trace.rank: _of_buckets(trace.of_kind(Kind.GRADIENT)) for trace in run.ranks}
    return _non_finite(by_rank, names) + _different_sums(by_rank, names)


def _of_buckets(records: Records) -> Records:
    chosen: Records = records[(records["flags"] & Flag.PARAMETER) == 0]
    return chosen


def _column(records: Records, value: GradientValue) -> npt.NDArray[np.int64]:
    return np.asarray(records["times"][:, value], np.int64)


def _non_finite(by_rank: dict[int, Records], names: Names) -> list[Finding]:
    """The rank whose own gradient was not finite first; the others get it in the next step's weights."""
    bad = {rank: records[_column(records, GradientValue.NON_FINITE) > 0] for rank, records in by_rank.items()}
    bad = {rank: records for rank, records in bad.items() if len(records)}
    if not bad:
        return []
    step = min(int(records["step"].min()) for records in bad.values())
    first = {rank: records[records["step"] == step] for rank, records in bad.items()}
    blamed = sorted(rank for rank, records in first.items() if len(records))
    record = first[blamed[0]][0]
    values = int(_column(first[blamed[0]], GradientValue.NON_FINITE).sum())
    parameter = _parameter(record, names)
    where = f", first in '{parameter}'" if parameter else ""
    return [
        Finding(
            kind="non_finite_gradient",
            severity="error",
            message=f"{'rank' if len(blamed) == 1 else 'ranks'} {listed(blamed)} put gradients that are not finite "
            f"into step {step} (rank {blamed[0]}: {count(values, 'value')}{where}); the averages are not finite "
            "either.",
            confidence="certain",
            rank=blamed[0] if len(blamed) == 1 else None,
            bucket=names.bucket(int(record["reference"])),
            parameter=parameter,
            evidence={"step": step, "values": values, "ranks": len(blamed)},
            change_mind="A gradient scaler that looks for its scale makes infinities on purpose, and skips the step.",
            advice="Look at that rank's batch and loss in this step. Only some passes are watched: it may have begun "
            "a few steps earlier.",
        )
    ]


def _parameter(record: Any, names: Names) -> str | None:
    index = int(record["times"][GradientValue.PARAMETER])
    module = names.modules.get(int(record["module"]))
    if module is None or not 0 <= index < len(module.parameters):
        return None
    return module.parameters[index]


def _different_sums(by_rank: dict[int, Records], names: Names) -> list[Finding]:
    """All-reduces after which the ranks hold different bits."""
    rows = [
        (key, rank, int(checksum), int(non_finite), record)
        for rank, records in by_rank.items()
        for key, checksum, non_finite, record in zip(
            zip(records["group"].tolist(), records["sequence"].tolist(), strict=True),
            _column(records, GradientValue.CHECKSUM).tolist(),
            _column(records, GradientValue.NON_FINITE).tolist(),
            records,
            strict=True,
        )
        if checksum
    ]
    sums: dict[tuple[int, int], dict[int, int]] = {}
    spoiled: set[tuple[int, int]] = set()
    about: dict[tuple[int, int], Any] = {}
    for key, rank, checksum, non_finite, record in rows:
        sums.setdefault(key, {})[rank] = checksum
        about.setdefault(key, record)
        if non_finite:
            # Which NaN it becomes may depend on the order of the addition.
            spoiled.add(key)
    different = [key for key, values in sums.items() if len(set(values.values())) > 1 and key not in spoiled]
    if not different:
        return []
    key = min(different, key=lambda key: (int(about[key]["step"]), key[1]))
    bucket = names.bucket(int(about[key]["reference"]))
    odd = _odd_ones(sums[key])
    blame = f"; rank {listed(odd)} differs from the rest" if odd else ""
    return [
        Finding(
            kind="different_sums",
            severity="error",
            message=f"after {count(len(different), 'all-reduce')} the ranks held different gradients, first in step "
            f"{int(about[key]['step'])} (bucket {bucket}){blame}. Their models drift apart.",
            confidence="certain",
            rank=odd[0] if len(odd) == 1 else None,
            bucket=bucket,
            evidence={
                "all_reduces": len(different),
                "compared": len(sums),
                "step": int(about[key]["step"]),
                "sequence": key[1],
            },
            change_mind="The traces are of different runs.",
            advice="A rank that skips an all-reduce, or calls another one of the same size, shifts all that follow. "
            'Recorder(sentinel="raise") stops at the first such step and tells which.',
        )
    ]


def _odd_ones(sums: dict[int, int]) -> list[int]:
    """The ranks outside a clear majority; none where there is no majority."""
    values, counts = np.unique(np.array(list(sums.values()), np.int64), return_counts=True)
    most = int(counts.argmax())
    if counts[most] * 2 <= len(sums):
        return []
    return sorted(rank for rank, value in sums.items() if value != int(values[most]))
