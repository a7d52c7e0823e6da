"""A run in which everything that a step can consist of is there at random."""

from pathlib import Path

import numpy as np

from support.trace_writer import MS, write_training


def random_run(folder: Path, seed: int, *, marked: bool) -> None:
    """Late ranks, phases, collectives, readings of the processor that exceed the time, and unknown ones."""
    random = np.random.default_rng(seed)
    writers = write_training(
        folder,
        world_size=3,
        steps=30,
        jitter_ms=6.0,
        seed=seed,
        late_ms={1: 15.0},
        data_late_ms={2: 7.0},
        step_records=marked,
    )
    for writer in writers:
        cpu = delay = 0
        ends = [int(each["times"][3]) for each in writer.records if each["kind"] == 3]
        for step, end in enumerate(ends):
            cpu += int(random.uniform(0, 40) * MS)
            delay += int(random.exponential(8) * MS)
            known = random.random() > 0.1
            writer.usage(step, end, cpu if known else -1, delay)
            if random.random() < 0.3:
                writer.phase("check", end - int(random.uniform(0, 30) * MS), end - MS)
            if random.random() < 0.3:
                writer.collective("gloo:barrier", end - int(random.uniform(0, 40) * MS), end)
        writer.write(folder)
