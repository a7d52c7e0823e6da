"""Forms a real Gloo group in a process of its own, which can be ended whatever it waits for."""

from __future__ import annotations

import json
import time
from typing import Any

from pyddpdiag.doctor.other_process import OtherProcess

_GRACE_S = 1.0


def form(rank: int, world_size: int, address: str, port: int, until: float) -> dict[str, Any]:
    """How it went: `ok`, `seconds`, `error`. Takes no longer than `until` (monotonic s)."""
    begin = time.monotonic()
    left = max(1.0, until - begin)
    arguments = map(str, (rank, world_size, address, port, left / 2))
    process = OtherProcess("-m", "pyddpdiag.doctor.try_group", *arguments)
    output = process.output(max(0.5, left - _GRACE_S))
    seconds = time.monotonic() - begin
    if output is None:
        return {
            "ok": False,
            "seconds": seconds,
            "error": f"no group after {seconds:.0f} s, and no message",
        }
    out, errors = output
    try:
        answer = json.loads(out.strip().splitlines()[-1])
        return {
            "ok": bool(answer["ok"]),
            "seconds": float(answer["seconds"]),
            "error": str(answer["error"])[:4000],
        }
    except (IndexError, ValueError, KeyError, TypeError):
        how = f"exitcode  : {process.exit_code} "
        return {"ok": False, "seconds": seconds, "error": f"{errors[-2000:]}\n{how}".strip()}
