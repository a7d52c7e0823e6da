"""Kinds about ranks that others wait for, and about what all ranks need beside the network."""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.kinds.kind import Kind

RANKS: Final = (
    Kind(
        "rank_alone",
        short="{ranks} works alone while the others wait",
        many="a rank",
        explains="late",
        part="life",
        at_once=True,
        # By what is no part of its own time.
        slows_all=True,
        cure="if {ranks} did not work alone",
    ),
    Kind(
        "late_rank",
        ("warning", "note"),
        short="{ranks} is late{when}",
        many="a rank",
        explains="late",
        cure="if {ranks} kept pace",
    ),
    Kind(
        "episodic_rank",
        short="{ranks} is late now and then",
        many="a rank",
        explains="late",
        cure="if {ranks} kept pace",
    ),
    Kind(
        "oversubscribed_threads",
        short="threads of {ranks} crowd the cores",
        explains="late",
        part="core",
        # It is late itself, and makes the others slow as well.
        slows_all=True,
        cure="with fewer threads",
    ),
    Kind(
        "memory_growth",
        short="the memory of {ranks} grows until none is left",
        many="the ranks",
    ),
    Kind(
        "cpu_quota",
        short="a limit of processor cores holds {ranks} back",
        explains="late",
        part="core",
        explained_by=("oversubscribed_threads",),
        cure="without the limit",
    ),
    Kind(
        "core_contention",
        short="{ranks} must wait for a processor core",
        explains="late",
        part="core",
        environment=True,
        explained_by=("oversubscribed_threads", "cpu_quota"),
        cure="with a core for each rank",
    ),
    Kind("slower_steps", short="all ranks are slower{when}", cure="if no step was slower"),
    Kind(
        "data_wait",
        short="the ranks wait for data{when}",
        part="data_wait",
        cure="if no rank waited for data",
    ),
    Kind(
        "full_evaluation",
        ("warning", "note"),
        "every rank evaluates all of the data",
        at_once=True,
        cure="if each rank evaluated its part",
    ),
    Kind("pause", short="the training pauses now and then", part="phase", cure="without the pauses"),
    Kind(
        "collector_pauses",
        short="Python's garbage collector holds {ranks} up",
        explains="late",
        cure="without the collector's pauses",
    ),
    Kind(
        "uneven_ranks",
        short="the ranks' work is uneven",
        explains="late",
        part="late",
        explained_by=("oversubscribed_threads",),
        cure="if all ranks had equal work",
    ),
    Kind(
        "hot_line",
        ("warning", "note"),
        "a part of each step{when} goes by at {where}",
        explains="late",
        part="compute",
        cure="without {where}",
    ),
)
