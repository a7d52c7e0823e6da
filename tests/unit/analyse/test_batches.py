"""Whether the ranks have equally many batches, by what is known of their loaders; and what to do if not."""

import pytest

from pyddpdiag.analyse.advice import Advice
from pyddpdiag.analyse.batches import UnevenBatches, uneven_batches
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.training import Loaded, Training


def found(*sizes: tuple[int | None, int | None]) -> UnevenBatches | None:
    return uneven_batches(
        {
            rank: Sidecar(
                training=Training(loaded=(Loaded("S", False, length=length, batch_size=size, epochs=1),))
            )
            for rank, (length, size) in enumerate(sizes)
        }
    )


def test_ranks_with_fewer_batches_are_named_first() -> None:
    uneven = found((48, 4), (48, 4), (32, 4))
    assert uneven is not None and uneven.batches == {0: 12, 1: 12, 2: 8}
    assert uneven.said.startswith("an epoch has 8 batches (32 samples) on rank 2, 12 batches")


@pytest.mark.parametrize(
    "sizes",
    [
        [(32, 4), (32, 4)],
        # Twice the samples in batches of twice the size.
        [(64, 8), (32, 4)],
        # A loader with drop_last has no batch for the sample that is too many.
        [(33, 4), (32, 4)],
        [(32, 4), (None, 4)],
        [(32, None), (48, None)],
        [(32, 4)],
    ],
)
def test_equally_many_batches_or_unknown_ones_are_no_finding(
    sizes: list[tuple[int | None, int | None]],
) -> None:
    assert found(*sizes) is None


@pytest.mark.parametrize(
    ("by", "line"),
    [
        ("", "with Join([ddp]):"),
        ("run", "with Join([ddp]):"),
        ("accelerate", "with accelerator.join_uneven_inputs([model]):"),
        ("lightning", ""),
    ],
)
def test_advice_names_what_the_program_can_do(by: str, line: str) -> None:
    said = Advice(by).uneven()
    assert said.startswith("Give every rank the same number of batches")
    assert said.endswith(line or "drop_last=True)).")
