"""Runs of several launches: what differs between sets of processes is not a difference between runs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from sample_entries import file, step

from pyddpdiag.bench.compare.compare import compare
from pyddpdiag.bench.intervals import ratio_of_rounds, ratio_of_runs, t_quantile, typical, verdict
from pyddpdiag.bench.results import by_launch, launches_of, read, save

Run = list[list[float]]


def run(generator: np.random.Generator, median_s: float = 0.01, launches: int = 5) -> Run:
    """Each launch is faster or slower by chance, by 10%; within it rounds differ by 3%."""
    return [
        (median_s * math.exp(generator.normal(0, 0.1)) * generator.normal(1, 0.03, 6)).tolist()
        for _ in range(launches)
    ]


def share(words: list[str], *some: str) -> float:
    return sum(words.count(word) for word in some) / len(words)


def test_the_same_twice_is_no_difference_where_rounds_alone_would_say_so() -> None:
    generator = np.random.default_rng(0)
    pairs = [(run(generator), run(generator)) for _ in range(400)]
    words = [verdict(ratio_of_runs(a, b), 30) for a, b in pairs]
    assert share(words, "faster", "slower") < 0.03
    naive = [verdict(ratio_of_rounds(a[0] * 5, b[0] * 5), 30) for a, b in pairs]
    assert share(naive, "faster", "slower") > 0.3
    # Without the margin, too, an interval of 95% holds the truth in 95% of cases.
    held = [found.low < 1 < found.high for found in (ratio_of_runs(a, b) for a, b in pairs)]
    assert 0.92 < sum(held) / len(held) < 0.99


@pytest.mark.parametrize(("times", "word"), [(1.5, "slower"), (1 / 1.5, "faster")])
def test_a_real_difference_is_still_found(times: float, word: str) -> None:
    generator = np.random.default_rng(1)
    words = [verdict(ratio_of_runs(run(generator, 0.01 * times), run(generator)), 30) for _ in range(200)]
    assert share(words, word) > 0.97


def test_a_single_launch_is_taken_to_scatter_as_the_others_do() -> None:
    generator = np.random.default_rng(2)
    several, one = run(generator), run(generator, launches=1)
    for found in (ratio_of_runs(several, one), ratio_of_runs(one, several)):
        alone = ratio_of_rounds(several[0], one[0])
        assert found.high / found.low > alone.high / alone.low
    assert ratio_of_runs(one, one) == ratio_of_rounds(one[0], one[0])


def test_what_does_not_scatter_has_no_width_and_two_launches_a_finite_one() -> None:
    same = ratio_of_runs([[2.0]] * 3, [[1.0]] * 3)
    assert same.low == same.median == same.high == pytest.approx(2.0)
    wide = ratio_of_runs([[1.0], [1e9]], [[1.0], [1e-9]])
    json.dumps(wide.as_dict(), allow_nan=False)
    with pytest.raises(ValueError, match="no rounds"):
        ratio_of_runs([], [[1.0]])


def test_the_typical_time_of_one_launch_is_its_median() -> None:
    assert typical([[1.0, 2.0, 9.0]]) == pytest.approx(2.0)
    assert typical([[1.0], [4.0]]) == pytest.approx(2.0)


def test_launches_are_kept_in_the_file_and_wrong_ones_are_not_believed(tmp_path: object) -> None:
    entry = step(sittings=[10, 20])
    assert [len(rounds) for rounds in by_launch(entry)] == [10, 20]
    path = save(f"{tmp_path}/a.json", [entry])
    assert launches_of(read(path).entries[0]) == [10, 20]
    for wrong in ([10, 10], [31, -1], ["30"], [True] * 30, 30, None):
        assert launches_of(step(sittings=wrong)) == [30]


def test_another_load_is_not_taken_for_a_difference() -> None:
    def words(times: float, before: float, after: float) -> list[tuple[str, str]]:
        quiet = file("a", step(0.01, 1, others_share=[before, None, before]))
        found = compare([quiet, file("b", step(0.01 * times, 2, others_share=[after] * 5))])
        assert any("processors more" in note for note in found.notes) == (found.pairs[0].why != "")
        return [(pair.word, pair.why) for pair in found.pairs]

    assert words(1.5, 0.1, 0.4) == [("cannot tell", "another load")]
    assert words(1 / 1.5, 0.4, 0.1) == [("cannot tell", "another load")]
    # Slower although others took less, and slower with as much beside it, are differences.
    assert words(1.5, 0.4, 0.1) == [("slower", "")]
    assert words(1.5, 0.4, 0.45) == [("slower", "")]
    assert words(1.0, 0.1, 0.6) == [("no difference", "")]


def test_the_comparison_says_what_it_cannot_know() -> None:
    alone = compare([file("a", step(0.01, 1, sittings=[30])), file("b", step(0.0115, 2, sittings=None))])
    assert [pair.word for pair in alone.pairs] == ["no difference"]
    assert any("a and b: measured in one launch" in note for note in alone.notes)
    several = [
        file(name, step(0.01 * t, s, sittings=[6] * 5)) for name, t, s in (("a", 1, 1), ("b", 1.15, 2))
    ]
    found = compare(several)
    assert [pair.word for pair in found.pairs] == ["slower"] and not found.notes
    scattered = step(0.01, 3, sittings=[6] * 5)
    rounds = tuple(v * (3 if i // 6 == 2 else 1) for i, v in enumerate(scattered.round_s))
    other = file("b", type(scattered)("", "", {}, scattered.extra_info, rounds))
    found = compare([several[0], other])
    assert [(pair.word, pair.why) for pair in found.pairs] == [("cannot tell", "wide interval")]
    assert any(note.startswith("1 of 1 cases could hide a difference of 20%") for note in found.notes)


def test_the_quantile_of_t() -> None:
    # Tables of the distribution.
    known = {1: 12.7062047362, 2: 4.3026527297, 5: 2.5705818356, 30: 2.0422724563, 1e9: 1.959964}
    for freedom, value in known.items():
        assert t_quantile(0.975, freedom) == pytest.approx(value, rel=2e-5 if freedom > 1e5 else 1e-10)
    between = [t_quantile(0.975, freedom) for freedom in np.linspace(1, 40, 100)]
    assert between == sorted(between, reverse=True)
    for probability, freedom in ((0.5, 3), (1.0, 3), (0.975, 0.5), (0.975, float("nan"))):
        with pytest.raises(ValueError, match="no quantile"):
            t_quantile(probability, freedom)
