"""Trainings drawn by a seed: what scripts do with a DDP module beside training it, in any combination."""

import random
from dataclasses import dataclass, fields
from typing import Literal

Clearing = Literal["none", "zero", "in turn", "some"]
Fault = Literal["forward", "between", "backward"]
CURES = ("shared-memory", "buckets", "views", "shared-memory+views", "views+buckets")


@dataclass(frozen=True)
class Scenario:
    """One training, the same on all ranks.

    Attributes:
        seed: from which it was drawn.
        ranks: how many there are.
        steps: optimizer steps, beside those within `join()`.
        adversarial: two modules, of which one is frozen and under `no_sync` while the other trains.
        frozen_first: the other one trains first in each step.
        tried_first: the trial is of the first of these.
        unused: `find_unused_parameters`, with a branch that each rank leaves out in other steps.
        static: `static_graph`.
        views: `gradient_as_bucket_view`, by the script itself.
        tied: two layers share a parameter.
        buffers: a layer with buffers, which DDP broadcasts.
        ignored: a parameter that DDP ignores, different on each rank.
        accumulate: passes of a step, all but the last under `no_sync`.
        frozen: from one step to another the first layers do not require gradients.
        clearing: how gradients are cleared.
        held: the script keeps references to its gradients, and updates by them.
        optimizers: of which the second steps every other time.
        clipped: gradients are clipped.
        faults: in which steps an exception is raised, and caught by the script, on all ranks.
        evaluations: before which steps a forward pass with gradients has no backward pass, in evaluation.
        looks: the same in training.
        joined: before which step the ranks train within `join()`, each another number of batches.
        without: a rank without a batch there.
        late: which rank is late for a step.
        saved, loaded: after which step a checkpoint is taken, and before which one it is loaded.
        moved: before which step `.to()` is called, with what it has already.
        cast: before which step it becomes float64, for two steps; DDP reduces nothing any more from then on.
        compiled: the script calls torch.compile's module of it.
        cures: that a trial tries; empty: the defaults.
        after: passes before the first change.
        blocks: of the trial, at most.
        kept: which of its settings it keeps, by number.
    """

    seed: int
    ranks: int
    steps: int = 30
    adversarial: bool = False
    frozen_first: bool = False
    tried_first: bool = False
    unused: bool = False
    static: bool = False
    views: bool = False
    tied: bool = False
    buffers: bool = False
    ignored: bool = False
    accumulate: int = 1
    frozen: tuple[int, int] = (0, 0)
    clearing: Clearing = "none"
    held: bool = False
    optimizers: int = 1
    clipped: bool = False
    faults: tuple[tuple[int, Fault], ...] = ()
    evaluations: tuple[int, ...] = ()
    looks: tuple[int, ...] = ()
    joined: int = -1
    without: int = -1
    late: tuple[tuple[int, int], ...] = ()
    saved: int = -1
    loaded: int = -1
    moved: int = -1
    cast: int = -1
    compiled: bool = False
    cures: tuple[str, ...] = ()
    after: int = 3
    blocks: int = 500
    kept: int = 0

    def __str__(self) -> str:
        """What differs from the simplest one."""
        given = [(one.name, getattr(self, one.name), one.default) for one in fields(self)]
        return ", ".join(f"{name}={value!r}" for name, value, default in given if value != default)


def draw(seed: int, ranks: int, *, compiles: bool = False) -> Scenario:
    """The scenario of a seed; `compiles`: it may take torch.compile, which takes seconds."""
    dice = random.Random(f"{seed} {ranks}")
    steps = dice.randint(18, 40)

    def at(chance: float, first: int = 2) -> int:
        return dice.randrange(first, steps) if dice.random() < chance else -1

    def some(chance: float) -> tuple[int, ...]:
        return tuple(sorted(dice.sample(range(1, steps), 3))) if dice.random() < chance else ()

    adversarial = dice.random() < 0.25
    unused = not adversarial and dice.random() < 0.5
    static = not adversarial and not unused and dice.random() < 0.1
    held = dice.random() < 0.15
    join = not adversarial and not static and not held
    frozen = tuple(sorted(dice.sample(range(steps), 2))) if unused and dice.random() < 0.6 else (0, 0)
    saved = at(0.3)
    accumulate = 1 if adversarial or static else dice.choice([1, 1, 2, 3])
    faults: list[tuple[int, Fault]] = []
    # With unused parameters, DDP may reduce a bucket before the backward pass, and remembers what was used under
    # `no_sync`: an exception then lets the ranks come apart, without a trial.
    whole = static or unused
    if not static and not (unused and accumulate > 1):
        kinds: list[Fault] = ["forward"] if unused else ["forward", "between"]
        faults += [(step, dice.choice(kinds)) for step in some(0.3)]
        if not unused and dice.random() < 0.1:
            faults.append((dice.randrange(2 * steps // 3, steps), "backward"))
    return Scenario(
        seed,
        ranks,
        steps,
        adversarial=adversarial,
        frozen_first=adversarial and dice.random() < 0.5,
        tried_first=adversarial and dice.random() < 0.5,
        unused=unused,
        static=static,
        views=dice.random() < 0.3,
        tied=dice.random() < 0.3,
        buffers=not adversarial and dice.random() < 0.3,
        ignored=dice.random() < 0.2,
        accumulate=accumulate,
        frozen=(frozen[0], frozen[1]),
        clearing="zero" if held else dice.choice(["none", "none", "zero", "in turn", "some"]),
        held=held,
        optimizers=dice.choice([1, 2]),
        clipped=dice.random() < 0.2,
        faults=tuple(faults),
        evaluations=() if whole else some(0.3),
        looks=() if whole else some(0.2),
        joined=at(0.25) if join else -1,
        without=dice.choice([-1, 0, ranks - 1]),
        late=tuple((step, dice.randrange(ranks)) for step in some(0.3)),
        saved=saved,
        loaded=-1 if saved < 0 else min(steps - 1, saved + dice.randint(1, 8)),
        moved=at(0.2),
        cast=at(0.1, steps // 2) if not static else -1,
        compiled=compiles and dice.random() < 0.15,
        # At more than two ranks only what keeps the bits there.
        cures=tuple(dice.sample(CURES, dice.randint(1, 4))) if ranks == 2 else (),
        after=dice.randint(1, 3) if ranks == 2 else 3,
        blocks=dice.choice([6, 12, 500]),
        kept=dice.randint(0, 3),
    )
