"""The tool that counts the core's cases natively and elsewhere, on files as ctest writes them."""

import sys
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

import compare_cases


def junit(file: Path, **programs: str) -> Path:
    cases = "".join(
        f'<testcase name="{name}"><system-out>{escape(output)}</system-out></testcase>'
        for name, output in programs.items()
    )
    file.write_text(f"<testsuite>{cases}</testsuite>", encoding="utf-8")
    return file


def compare(tmp_path: Path, here: str, there: str) -> list[str]:
    return compare_cases.compare(
        compare_cases.read(junit(tmp_path / "a.xml", ring=here)),
        compare_cases.read(junit(tmp_path / "b.xml", ring=there)),
    )


def test_the_same_cases_are_in_order(tmp_path: Path) -> None:
    text = "pass  a: one\npass  two\n2 passed, 0 failed, 0 skipped\n"
    assert compare(tmp_path, text, text.replace("\n", "\r\n")) == []


def test_a_skip_with_its_reason_is_in_order(tmp_path: Path) -> None:
    here = "pass  one\npass  two\n2 passed, 0 failed, 0 skipped\n"
    there = "pass  one\nskip  two: no such thing: here\n1 passed, 0 failed, 1 skipped\n"
    assert compare(tmp_path, here, there) == []
    assert compare_cases.read(tmp_path / "b.xml").skipped == {"ring: two": "no such thing: here"}


@pytest.mark.parametrize(
    ("there", "problem"),
    [
        ("pass  one\n1 passed, 0 failed, 0 skipped\n", "only native: ring: two"),
        ("pass  one\nFAIL  two\n1 passed, 1 failed, 0 skipped\n", "failed: ring: two"),
        ("pass  one\nskip  two\n1 passed, 0 failed, 1 skipped\n", "skipped without a reason: ring: two"),
        (
            "pass  one\npass  two\npass  three\n3 passed, 0 failed, 0 skipped\n",
            "only on the other system: ring: three",
        ),
    ],
)
def test_what_differs_is_reported(tmp_path: Path, there: str, problem: str) -> None:
    assert compare(tmp_path, "pass  one\npass  two\n2 passed, 0 failed, 0 skipped\n", there) == [problem]


@pytest.mark.parametrize("output", ["", "pass  one\n", "pass  one\n2 passed, 0 failed, 0 skipped\n"])
def test_output_that_is_cut_short_is_refused(tmp_path: Path, output: str) -> None:
    with pytest.raises(SystemExit, match="not complete"):
        compare_cases.read(junit(tmp_path / "a.xml", ring=output))


def test_no_case_at_all_is_no_success(tmp_path: Path) -> None:
    assert compare_cases.compare(compare_cases.Cases(), compare_cases.Cases()) == ["there is no case at all"]
