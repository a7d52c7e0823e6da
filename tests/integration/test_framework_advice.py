"""What is advised in a framework can be typed there: each line runs with the package itself."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Final

import pytest
from support.promised import need

from pyddpdiag.analyse.advice import Advice

OPTIONS: Final = (
    "broadcast_buffers=False",
    "bucket_cap_mb=10",
    "find_unused_parameters=False",
    "static_graph=True",
)
NAMES: Final = {
    "accelerate": ("accelerate", "accelerate.utils"),
    "lightning": ("lightning.pytorch", "lightning.pytorch.strategies"),
    "transformers": ("transformers",),
}


class Names(dict[str, Any]):
    """What a script imports from these modules."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        super().__init__()
        self._modules = [importlib.import_module(name) for name in modules]

    def __missing__(self, name: str) -> Any:
        return next(getattr(module, name) for module in self._modules if hasattr(module, name))


@pytest.mark.filterwarnings("ignore")  # the packages' own
@pytest.mark.parametrize("package", NAMES)
def test_each_line_is_taken(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = importlib.util.find_spec(package) is None
    need("frameworks", f"{package} is not installed (dependency group 'frameworks')" if absent else "")
    monkeypatch.chdir(tmp_path)
    names, advice = Names(NAMES[package]), Advice("run", framework=package)
    lines = [advice.ddp_option(option) for option in OPTIONS]
    assert advice.bucket_cap(10) == "pyddpdiag run --bucket-cap-mb 10"
    assert Advice(package).bucket_cap(10) in lines
    lines += [advice.accumulate(4).partition(" and, ")[0], advice.workers("2")]
    for line in lines:
        if not line.startswith("DataLoader("):
            eval(line, {}, names)
