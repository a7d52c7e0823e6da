"""All formats that `pyddpdiag export` writes, in the order of its options."""

from __future__ import annotations

from typing import Final

from pyddpdiag.export.format import Format

FORMATS: Final = (
    Format(
        "chrome",
        "Time lines for Perfetto, chrome://tracing and Holistic Trace Analysis.",
        "chrome:outputs",
        timelines=True,
    ),
    Format("csv", "Steps, buckets and more as CSV.", "frames:csv_outputs"),
    Format("parquet", "The same as Parquet.", "frames:parquet_outputs", needs="pyarrow"),
    Format(
        "tensorboard",
        "Scalars for TensorBoard.",
        "tensorboard:outputs",
        folder="tensorboard",
        stale="*/events.out.tfevents.*",
    ),
    Format(
        "openmetrics",
        "Gauges for Prometheus: a text file for the node exporter's folder.",
        "openmetrics:outputs",
    ),
    Format("stacks", "The ranks' Python stacks, for speedscope and flamegraph.pl.", "stacks:outputs"),
)
