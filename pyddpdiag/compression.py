"""The 16-bit types that a bucket may travel in."""

from __future__ import annotations

from typing import Final, Literal

from pyddpdiag.errors import UsageError

Compress = Literal["bf16", "fp16"]
# `Compression` in csrc/torch/compressed_bucket.hpp.
NONE: Final = 0
NUMBERS: Final = {"bf16": 1, "fp16": 2}


def number(compress: str | None) -> int:
    """The native side's number of a way to compress.

    Raises:
        UsageError: there is no such way.
    """
    if compress is None:
        return NONE
    if compress not in NUMBERS:
        raise UsageError(
            f"compress must be None, 'bf16' or 'fp16', not {compress!r}.",
            hint="'bf16' halves what travels; 'fp16' too, but Gloo sums it so slowly that it saves no time.",
        )
    return NUMBERS[compress]
