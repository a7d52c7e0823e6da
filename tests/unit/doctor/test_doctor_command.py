"""The doctor as a command: on machines that lack something, on a healthy one, and with logs."""

import json
from pathlib import Path

import pytest
from support.commands import python, ran
from support.doctored import command, environment

pytestmark = pytest.mark.slow
WITHOUT_TORCH = """
import importlib.metadata as m, importlib.util as u, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch" or name in ("pyddpdiag._native", "pyddpdiag._build"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
real, spec = m.version, u.find_spec
def version(name):
    if name == "torch":
        raise m.PackageNotFoundError(name)
    return real(name)
def find_spec(name, package=None):
    return None if name in ("torch", "pyddpdiag._native", "pyddpdiag._build") else spec(name, package)
m.version, u.find_spec = version, find_spec
from pyddpdiag.cli import main
code = main(["doctor", "--json"])
assert not {"torch", "numpy"} & set(sys.modules)
sys.exit(code)
"""


def test_a_machine_without_torch_is_told_what_to_install() -> None:
    done = python("-c", WITHOUT_TORCH, env=environment())
    assert done.returncode == 1, done.stderr
    checks = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
    assert checks["torch"]["status"] == "fail" and checks["torch"]["lines"][0].startswith(
        'pip install "torch'
    )
    assert {one["status"] for name, one in checks.items() if name not in ("torch", "native module")} == {
        "pass"
    }


def test_a_healthy_machine_has_no_finding_in_time() -> None:
    """No false alarm, and far from the limit that the checks keep for themselves."""
    done = ran(*command("--json"), env=environment())
    answer = json.loads(done.stdout)
    assert [one for one in answer["checks"] if one["status"] != "pass"] == []
    assert done.returncode == 0
    assert {"torch", "interfaces", "host name", "rendezvous", "threads"} <= {
        one["name"] for one in answer["checks"]
    }


def test_the_text_shows_each_check_and_the_line() -> None:
    done = ran(*command("--shell", "powershell"), env=environment({"GLOO_SOCKET_IFNAME": "nosuch7"}))
    assert done.returncode == 1, done.stderr
    assert "fail  GLOO_SOCKET_IFNAME" in done.stdout
    assert "$env:GLOO_SOCKET_IFNAME = '" in done.stdout
    assert ran(*command("--shell", "fish"), env=environment()).returncode == 2


@pytest.mark.parametrize("how", ["file", "-"])
def test_logs_are_explained_from_a_file_and_from_standard_input(how: str, tmp_path: Path) -> None:
    text = "RuntimeError: [gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ^docker\n"
    path = tmp_path / "rank_0.log"
    path.write_bytes(text.encode("utf-16"))
    done = ran(
        *command("--log", path if how == "file" else how),
        env=environment(),
        input="" if how == "file" else text,
    )
    assert done.returncode == 1, done.stderr
    assert "interface_unknown" in done.stdout and "GLOO_SOCKET_IFNAME" in done.stdout


def test_an_unknown_log_is_called_so_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    for text, code, says in (("all is well\n", 0, "No error"), ("FATAL: ten\n", 2, "not in the catalog")):
        path.write_text(text, encoding="utf-8")
        done = ran(*command("--log", path), env=environment())
        assert done.returncode == code and says in done.stdout
    gone = ran(*command("--log", tmp_path / "none"), env=environment())
    assert gone.returncode == 2 and "cannot be read" in gone.stderr and "Traceback" not in gone.stderr
