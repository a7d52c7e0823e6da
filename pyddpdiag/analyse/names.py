"""Names for the things that records refer to by number: buckets, parameters, groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyddpdiag.model.sidecar import Group, Layout, Module
from pyddpdiag.trace.run import Run


@dataclass(frozen=True)
class Names:
    """Looks names up in the sidecars of a run; falls back to numbers."""

    run: Run

    @cached_property
    def modules(self) -> dict[int, Module]:
        """DDP modules by index."""
        return self.run.modules()

    @cached_property
    def layouts(self) -> dict[int, Layout]:
        """Bucket layouts by identity."""
        return self.run.layouts()

    @cached_property
    def groups(self) -> dict[int, Group]:
        """Process groups by id."""
        return self.run.groups()

    @staticmethod
    def bucket(reference: int) -> str:
        """A bucket's stable id: its 64-bit identity as 16 hex digits."""
        return f"{reference:016x}"

    def group(self, key: int) -> str:
        """The name of a process group, its id where the name is not known."""
        known = self.groups.get(key)
        return known.name if known and known.name else f"{key:016x}" if key else "unknown"

    def dtype(self, reference: int) -> str:
        """The type of a bucket's gradients; "" where its layout is not known."""
        layout = self.layouts.get(reference)
        return layout.dtype if layout is not None else ""

    def parameter(self, module: int, index: int) -> str | None:
        """The name of one parameter of a module; None: not known."""
        known = self.modules.get(module)
        return known.parameters[index] if known and 0 <= index < len(known.parameters) else None

    def parameters(self, reference: int) -> tuple[str, ...]:
        """The parameters in a bucket, in the buffer's order; empty where its layout is not known."""
        layout = self.layouts.get(reference)
        if layout is None:
            return ()
        module = self.modules.get(layout.module)
        names = module.parameters if module else ()
        # With one module, its own names suffice; with several, they could clash.
        prefix = f"module{layout.module}." if len(self.modules) > 1 else ""
        return tuple(
            prefix + names[index]
            if index < len(names) and names[index]
            else f"module{layout.module}.param{index}"
            for index in layout.parameters
        )
