"""`pyddpdiag bench`: its sub-commands, one file each."""

from __future__ import annotations

import typer

from pyddpdiag.cli.bench.allreduce import allreduce
from pyddpdiag.cli.bench.buckets import buckets
from pyddpdiag.cli.bench.interfaces import interfaces

bench = typer.Typer(
    help="Measure DDP on this machine: bucket sizes, network interfaces, all-reduces.", no_args_is_help=True
)
bench.command()(buckets)
bench.command("interfaces")(interfaces)
bench.command()(allreduce)
