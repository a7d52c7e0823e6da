"""Labelled wheels: one version per torch minor, and pip takes the one that fits."""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

import pytest
from support.commands import ran

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

import label_wheel


def wheel(folder: Path, name: str, version: str, *requires: str) -> Path:
    """A wheel of one empty module, with `requires` in its metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {r}" for r in requires]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(f"{info}/METADATA", "\n".join(lines) + "\n\nVersion: of the description\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/RECORD,,\n")
    return path


def test_the_label_is_in_the_name_the_metadata_and_the_record(tmp_path: Path) -> None:
    before = wheel(tmp_path, "pyddpdiag", "0.1.0", "numpy>=1", "torch==2.12.*")
    after = label_wheel.label(before)
    assert [p.name for p in tmp_path.iterdir()] == ["pyddpdiag-0.1.0+torch2.12-py3-none-any.whl"]
    info = "pyddpdiag-0.1.0+torch2.12.dist-info"
    with zipfile.ZipFile(after) as archive:
        metadata = archive.read(f"{info}/METADATA").decode()
        assert "\nVersion: 0.1.0+torch2.12\n" in metadata
        assert metadata.endswith("\nVersion: of the description\n")
        record = [line.split(",") for line in archive.read(f"{info}/RECORD").decode().splitlines()]
        assert sorted(name for name, *_ in record) == sorted(archive.namelist())
        for name, digest, size in record[:-1]:
            data = archive.read(name)
            encoded = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={encoded}", len(data))
    assert label_wheel.label(after) == after


def test_a_wheel_without_a_pin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not pinned"):
        label_wheel.label(wheel(tmp_path, "pyddpdiag", "0.1.0", "torch>=2.11,<2.14"))


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        (["torch==2.12.*", "pyddpdiag"], ["pyddpdiag-0.1.0+torch2.12", "torch-2.12.1"]),
        (["torch==2.11.0", "pyddpdiag"], ["pyddpdiag-0.1.0+torch2.11", "torch-2.11.0"]),
        (["pyddpdiag==0.1.0+torch2.12"], ["pyddpdiag-0.1.0+torch2.12", "torch-2.12.1"]),
        (["pyddpdiag"], ["pyddpdiag-0.1.0+torch2.13", "torch-2.13.0"]),
    ],
)
def test_pip_takes_the_wheel_that_fits(tmp_path: Path, asked: list[str], got: list[str]) -> None:
    page = tmp_path / "page"
    for version in ("2.11.0", "2.12.1", "2.13.0"):
        wheel(page, "torch", version)
        minor = version.rpartition(".")[0]
        label_wheel.label(wheel(page, "pyddpdiag", "0.1.0", f"torch=={minor}.*"))
    taken = tmp_path / "taken"
    command = [
        *(sys.executable, "-m", "pip", "--isolated", "download", "--quiet", "--no-index"),
        "--no-cache-dir",
    ]
    done = ran(*command, "--find-links", page, "--dest", taken, *asked)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name.removesuffix("-py3-none-any.whl") for p in taken.iterdir()) == got
