"""The catalog of checks: what they promise, what the docs say of them, and the order of the verdict."""

import ast
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.trace_writer import write_training

from pyddpdiag.analyse import catalog, checks
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.group_view import parts
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.weigh.verdict import weigh
from pyddpdiag.model.findings import Finding, Severity
from pyddpdiag.model.kinds import KINDS
from pyddpdiag.trace.run import open_run

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "pyddpdiag" / "analyse" / "checks").glob("[!_]*.py"))
PROMISED = {"kind", "severity", "message", "confidence", "evidence", "change_mind", "advice"}


def checks_of(path: Path) -> tuple[Check, ...]:
    module = vars(importlib.import_module(f"{checks.__name__}.{path.stem}"))
    found: tuple[Check, ...] = module["CHECKS"] if "CHECKS" in module else (module["CHECK"],)
    assert all(isinstance(each, Check) for each in found)
    return found


def findings_in(source: str) -> Iterator[dict[str, ast.expr]]:
    """The arguments of every `Finding(...)` in a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding":
            assert not node.args, "name the arguments of a Finding"
            yield {word.arg: word.value for word in node.keywords if word.arg is not None}


def texts_in(node: ast.expr) -> set[str]:
    """The texts that an expression can be: a constant, either side of `a if b else c`, or what `severity` gives."""
    if isinstance(node, ast.IfExp):
        return texts_in(node.body) | texts_in(node.orelse)
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "severity":
        return {"warning", "note"}
    assert isinstance(node, ast.Constant), ast.unparse(node)
    return {str(node.value)}


def test_every_file_is_in_the_catalog_once() -> None:
    assert len(FILES) == sum(1 for _ in pkgutil.iter_modules(checks.__path__)) > 10
    listed = [id(check) for check in catalog.CHECKS]
    assert sorted(listed) == sorted(id(each) for path in FILES for each in checks_of(path))
    # One that only a look at a run that still goes on can find.
    kinds = [kind for kind in KINDS if kind != "rank_absent"]
    assert [kind for check in catalog.CHECKS for kind in check.kinds] == kinds


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_check_makes_what_it_announces_and_tells_all_of_it(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    made: dict[str, set[str]] = {}
    for fields in findings_in(source):
        assert PROMISED - set(fields) == set()
        severities = texts_in(fields["severity"])
        for kind in texts_in(fields["kind"]):
            made.setdefault(kind, set()).update(severities)
        costs = not any(KINDS[kind].family == "values" for kind in texts_in(fields["kind"]))
        if costs and "warning" in severities and severities.isdisjoint(("error", "note")):
            assert "cost_ms" in fields, "what costs time says how much"
    kinds = [kind for check in checks_of(path) for kind in check.kinds]
    assert made == {kind: set(KINDS[kind].severities) for kind in kinds}


def test_a_check_can_only_be_made_superfluous_by_an_earlier_one() -> None:
    seen: set[str] = set()
    for check in catalog.CHECKS:
        assert set(check.unless) <= seen
        seen |= set(check.kinds)


def test_each_kind_is_on_the_page_of_its_family() -> None:
    pages = {
        path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "findings").glob("*.md")
    }
    rows = {page: re.findall(r"^- `(\w+)`: ", text, re.MULTILINE) for page, text in pages.items()}
    wanted: dict[str, list[str]] = {}
    for kind in KINDS.values():
        wanted.setdefault("settings" if kind.family == "devices" else kind.family, []).append(kind.name)
    assert rows == wanted


def test_the_site_adds_what_the_table_of_kinds_says() -> None:
    spec = importlib.util.spec_from_file_location("completed", ROOT / "docs" / "completed.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.findings("- `loopback`: exposed\n")
    assert page.splitlines()[0] == "| kind | severity | in short | when |"
    assert f"| `loopback` | warning | {KINDS['loopback'].short} | exposed " in page
    assert "*Cure: `--shared-memory`.*" in page and "Rests on all ranks" in page


def finding(kind: str, severity: Severity, cost_ms: float | None = None) -> Finding:
    return Finding(kind, severity, kind, "high", cost_ms=cost_ms)


def test_errors_come_in_the_catalogs_order_and_the_rest_by_cost(tmp_path: Path) -> None:
    write_training(tmp_path)
    view = RunView(open_run(tmp_path))
    found = [
        finding("e1", "error"),
        finding("e2", "error", 5.0),
        finding("small", "warning", 1.0),
        finding("note", "note", 100.0),
        finding("large", "warning", 2.0),
        finding("unknown", "warning"),
    ]
    order = [found.kind for found in weigh([view], found).findings]
    assert order == ["e1", "e2", "large", "small", "unknown", "note"]


def test_a_view_computes_what_is_asked_for_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyddpdiag.analyse import view as module

    calls: list[str] = []
    for name in ("Intake", "align", "measure", "step_table", "observe", "gaps"):
        real = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, name=name, real=real: calls.append(name) or real(*args)
        )
    write_training(tmp_path)
    view = RunView(open_run(tmp_path))
    assert view.headers and view.sidecars and calls == []
    assert view.steps is view.steps
    assert sorted(calls) == ["Intake", "step_table"]
    meeting = parts(view)
    catalog.find(view, meeting)
    weigh(meeting, [])
    assert view.occurrences is view.occurrences
    assert len(calls) == len(set(calls))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("train.py:9", 1),
        ("train.py:12 in average", 1),
        ("train.py:12", 2),
        ("train.py:9 in main", 1),
        ("", 2),
    ],
)
def test_a_line_that_takes_time_is_not_told_twice(where: str, said: int) -> None:
    cause = Finding("pause", "warning", "", "high", where=where)
    line = Finding("hot_line", "warning", "", "high", where="train.py:9 in average")
    assert len(catalog._said_once([cause, line])) == said
