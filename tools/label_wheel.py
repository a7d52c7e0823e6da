"""Gives wheels the local version label of the torch minor that they are pinned to: 0.1.0 to 0.1.0+torch2.13.

So the wheels for several torch minors lie side by side in one folder, and pip takes the one whose requirement
fits. Arguments: wheels, or folders of them; each is replaced. After repairing, which may rename, too.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path


def record_line(name: str, data: bytes) -> str:
    """A file's line in RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def label(wheel: Path) -> Path:
    """Replaces the wheel by its labelled twin, whose path is returned; a labelled one stays as it is.

    Raises:
        SystemExit: the wheel is not pinned to one torch minor.
    """
    name, version, *tags = wheel.stem.split("-")
    with zipfile.ZipFile(wheel) as archive:
        files = {info: archive.read(info) for info in archive.infolist() if not info.is_dir()}
    old = f"{name}-{version}.dist-info/"
    [metadata] = [data.decode() for info, data in files.items() if info.filename == f"{old}METADATA"]
    pin = re.search(r"^Requires-Dist: torch==(\d+\.\d+)\.\*$", metadata, re.MULTILINE)
    if pin is None:
        raise SystemExit(f"label_wheel.py: {wheel.name} is not pinned to one torch minor")
    if "+" in version:
        return wheel
    labelled = f"{version}+torch{pin[1]}"
    new = f"{name}-{labelled}.dist-info/"
    target = wheel.with_name("-".join([name, labelled, *tags]) + ".whl")
    record = ""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, data in files.items():
            content = data
            if info.filename == f"{old}RECORD":
                continue
            if info.filename == f"{old}METADATA":
                content = re.sub(rb"(?m)^Version: .*$", f"Version: {labelled}".encode(), data, count=1)
            if info.filename.startswith(old):
                info.filename = new + info.filename.removeprefix(old)
            # Written under its own entry: time and permissions stay.
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
            record += record_line(info.filename, content)
        archive.writestr(f"{new}RECORD", f"{record}{new}RECORD,,\n")
    wheel.unlink()
    return target


if __name__ == "__main__":
    for argument in map(Path, sys.argv[1:]):
        for file in sorted(argument.glob("*.whl")) if argument.is_dir() else [argument]:
            print(label(file).name)
