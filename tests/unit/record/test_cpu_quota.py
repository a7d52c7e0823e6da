"""The limit of a container, read from written files as Linux has them."""

from __future__ import annotations

from pathlib import Path

from pyddpdiag.record.cpu_quota import CpuQuota


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".", 1)).write_text(text, encoding="ascii")


def stat(periods: int, throttled: int, us: int) -> str:
    return f"usage_usec 99\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {us}\n"


def test_the_tightest_limit_around_the_process_counts_from_when_it_is_opened(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("0::/pods/train\n", encoding="ascii")
    put(root, cpu__max="max 100000\n")
    put(root / "pods", cpu__max="150000 100000\n", cpu__stat=stat(10, 2, 5_000))
    put(root / "pods" / "train", cpu__max="400000 100000\n", cpu__stat=stat(10, 0, 0))
    quota = CpuQuota(root, own)
    put(root / "pods", cpu__stat=stat(110, 42, 905_000))
    assert quota.now() == {
        "milli_cores": 1500,
        "periods": 100,
        "throttled_periods": 40,
        "throttled_us": 900_000,
    }


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("0::/../../elsewhere\n", encoding="ascii")
    put(root, cpu__max="50000 100000\n", cpu__stat=stat(1, 1, 1))
    assert CpuQuota(root, own).now()["milli_cores"] == 500


def test_version_1_counts_nanoseconds(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n", encoding="ascii")
    group = root / "cpu,cpuacct" / "docker" / "x"
    limit = {"cpu__cfs_quota_us": "200000\n", "cpu__cfs_period_us": "100000\n"}
    put(group, **limit, cpu__stat="nr_periods 5\nnr_throttled 1\nthrottled_time 1000000\n")
    quota = CpuQuota(root, own)
    put(group, cpu__stat="nr_periods 25\nnr_throttled 11\nthrottled_time 8000000\n")
    assert quota.now() == {"milli_cores": 2000, "periods": 20, "throttled_periods": 10, "throttled_us": 7_000}


def test_without_a_limit_or_any_files_there_is_none(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    assert CpuQuota(root, own).now() == {}
    own.write_text("4:cpu:/a\n0::/a\nnonsense\n", encoding="ascii")
    put(root / "a", cpu__max="max 100000\n")
    put(root / "cpu" / "a", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert CpuQuota(root, own).now() == {}
    # And that of the machine here can be read, whatever it is.
    assert all(value >= 0 for value in CpuQuota().now().values())
