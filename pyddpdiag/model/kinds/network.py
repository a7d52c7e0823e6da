"""Kinds about communication: links, the layout of buckets, needless calls."""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.kinds.kind import Kind

_LAYOUT: Final = ("single_bucket", "small_buckets", "large_last_bucket")
"""A layout is judged by what transfers take, so what makes these longer or more is in it as well."""

_CAP: Final = {"--bucket-cap-mb": "saved_ms"}
_MAY_COST: Final = ("warning", "note")

NETWORK: Final = (
    Kind(
        "interface_order",
        _MAY_COST,
        "GLOO_SOCKET_IFNAME names the interfaces in another order on some ranks",
        explains="exposed",
        leads_to=_LAYOUT,
        cure="over the other interface",
    ),
    Kind(
        "flapping_link",
        short="nothing moves on {links} for moments",
        explains="exposed",
        explained_by=("interface_order",),
        leads_to=(*_LAYOUT, "exposed_communication"),
        cure="if the link stayed up",
    ),
    Kind(
        "packet_loss",
        short="data is lost on {links}",
        explains="exposed",
        # A link that is down loses what is under way.
        explained_by=("flapping_link",),
        leads_to=_LAYOUT,
        cure="without losses",
    ),
    Kind(
        "high_latency",
        _MAY_COST,
        "round trips are long on {links}",
        explains="exposed",
        explained_by=("interface_order",),
        leads_to=_LAYOUT,
        cure="on a link without the delay",
    ),
    Kind(
        "slow_link",
        short="data moves slowly over {links}{when}",
        explains="exposed",
        explained_by=("interface_order", "flapping_link"),
        leads_to=_LAYOUT,
        cure="if all links were alike",
    ),
    Kind(
        "wrong_interface",
        _MAY_COST,
        "data of {ranks} goes over another interface than it should",
        explains="exposed",
        explained_by=("interface_order",),
        leads_to=_LAYOUT,
        cure="over the faster interface",
    ),
    Kind(
        "missing_no_sync",
        _MAY_COST,
        "gradients are averaged several times for each step of the optimizer",
        explains="exposed",
        leads_to=(*_LAYOUT, "exposed_communication"),
        cure="if they were averaged once",
    ),
    Kind(
        "single_bucket",
        short="all gradients are in one bucket",
        explains="exposed",
        cure="with smaller buckets",
        saves=_CAP,
    ),
    Kind(
        "small_buckets",
        short="the buckets are small",
        explains="exposed",
        cure="with larger buckets",
        saves=_CAP,
    ),
    Kind(
        "large_last_bucket",
        short="the last bucket is the largest",
        explains="exposed",
        cure="with a smaller last bucket",
        saves=_CAP,
    ),
    Kind(
        "loopback",
        short="all ranks exchange gradients through one machine's loopback interface",
        explains="exposed",
        environment=True,
        explained_by=_LAYOUT,
        cure="in shared memory",
        saves={"--shared-memory": "shared_memory_saves_ms"},
    ),
    Kind(
        "exposed_communication",
        short="communication is exposed{when}",
        explains="exposed",
        # These say why.
        explained_by=(
            "packet_loss",
            "high_latency",
            "slow_link",
            "wrong_interface",
            "interface_order",
            "loopback",
            *_LAYOUT,
        ),
        cure="with gradients in 16 bits",
        saves={"--compress": "half_saves_ms"},
    ),
    Kind(
        "averaged_twice",
        short="the script averages gradients that DDP has averaged",
        part="other",
        cure="without the second average",
    ),
    Kind(
        "buffer_broadcast",
        _MAY_COST,
        "buffers are sent to every rank before each forward pass",
        part="other",
        cure="without sending buffers",
    ),
    Kind(
        "collective_per_step",
        _MAY_COST,
        "a small collective is called in every step",
        part="other",
        explained_by=("averaged_twice",),
        cure="with values reduced now and then",
    ),
    Kind(
        "other_collectives",
        short="collectives other than buckets hold up the steps",
        part="other",
        # These say what the calls are for.
        explained_by=("averaged_twice", "buffer_broadcast", "collective_per_step"),
        cure="without other collectives",
    ),
)
