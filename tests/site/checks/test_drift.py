"""The test of drift: its p-value is valid, it names column and row, and it asks the test rows."""

from fractions import Fraction

import numpy as np
import pytest
from support.paths import DOCS

from conovel.site.checks.drift import (
    MOST_DRAWS,
    UNDECIDED,
    drift_finding,
    find_drift,
    level_of_each,
    permutation_p_value,
    settled,
)


def names(d):
    return [f"c{j}" for j in range(d)]


@pytest.mark.parametrize("change", ["step", "trend", "spread"])
def test_the_column_and_the_row_are_named(change):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(600, 5))
    if change == "step":
        rows[400:, 3] += 1
    elif change == "trend":
        rows[:, 3] += np.linspace(0, 2, 600)
    else:
        rows[300:, 3] *= 3
    found = find_drift(rows, names(5))
    assert [one.column for one in found.drifting()] == ["c3"]
    assert found.p_value == Fraction(1, 2000)
    expected = {"step": 400, "trend": 300, "spread": 300}[change]
    assert abs(found.columns[0].since - expected) <= 90


@pytest.mark.parametrize("kind", ["normal", "few values", "heavy tails"])
def test_the_p_value_is_valid(kind):
    rng = np.random.default_rng(2)
    draw = {
        "normal": lambda: rng.normal(size=(60, 3)),
        "few values": lambda: rng.integers(0, 2, size=(60, 3)).astype(float),
        "heavy tails": lambda: rng.standard_cauchy(size=(60, 3)),
    }[kind]
    p_values = np.array([float(find_drift(draw(), "abc", 199).p_value) for _ in range(300)])
    for t in (0.05, 0.2, 0.5):
        assert (p_values <= t).mean() <= t + 3 * (t * (1 - t) / 300) ** 0.5
    assert (p_values <= 0.5).mean() > 0.3  # and not idle


def test_besag_and_clifford_is_exact():
    # The p-value takes the values 1/n, …, h/n, h/(n-1), …, and P(p <= v) = v for each of them.
    rng = np.random.default_rng(3)
    p_values = np.array(
        [float(permutation_p_value(rng.random(1), rng.random, 39).p_value) for _ in range(4000)]
    )
    for v in (1 / 40, 4 / 40, 10 / 40, 10 / 20):
        assert abs((p_values <= v + 1e-12).mean() - v) <= 3 * (v * (1 - v) / 4000) ** 0.5


def test_the_chance_of_a_false_finding_at_any_agent():
    """The bound is 1/100 for up to 20 agents, and K/2000 for more: as docs/theory.md says."""
    for n_agents in (1, 2, 19, 20, 21, 100):
        bound = n_agents * level_of_each(n_agents)
        assert bound == max(Fraction(1, 100), Fraction(n_agents, 2000))
        assert level_of_each(n_agents) >= Fraction(1, MOST_DRAWS + 1)  # else nothing is found
    text = (DOCS / "theory.md").read_text(encoding="utf-8")
    assert "at most 1/100 for up to 20 agents, and $K/2000$ for more" in text


def test_a_sorted_file_dealt_at_random_breaks_no_promise():
    rng = np.random.default_rng(4)
    rows = np.sort(rng.normal(size=(1500, 1)), axis=0)
    dealt = rng.random(1500) < 0.7
    null, test = rows[dealt], rows[~dealt]
    found = find_drift(null, ["a"])
    assert found.drifting()
    order = drift_finding(found, null, test, ["a"])
    assert order.kind == UNDECIDED
    assert settled(order, 0.1) is None
    assert settled(order, 0.4).kind == "drift"
    later = drift_finding(found, null, test + 1, ["a"])
    assert later.kind == "drift"
    assert later.columns == ("a",)
    assert len(later.trace) == 20
