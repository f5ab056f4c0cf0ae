"""Mistakes in the columns are found, and columns that only look a little like them are not."""

import warnings

import numpy as np
import pandas as pd
import pytest

import conovel as cn
from conovel.site.checks.columns import (
    column_findings,
    label_finding,
    looks_like_id,
    named_label_findings,
)

RNG = np.random.default_rng(0)
X_NULL, X_TEST = RNG.normal(size=(300, 3)), RNG.normal(size=(100, 3))


def with_column(null, test, place=1):
    return (
        np.insert(X_NULL, place, null, axis=1),
        np.insert(X_TEST, place, test, axis=1),
    )


def kinds(null, test):
    return [(one.kind, one.columns) for one in column_findings(null, test, list("abcd"))]


@pytest.mark.parametrize(
    ("null", "test", "kind"),
    [
        (np.arange(300), np.arange(300, 400), "id"),
        (RNG.permutation(300), 300 + RNG.permutation(100), "id"),
        (1_700_000_000 + 37 * np.arange(300), 1_800_000_000 + 41 * np.arange(100), "id"),
        (np.full(300, 7.0), np.full(100, 7.0), "constant"),
        (RNG.lognormal(0, 1, 300), 1000 * RNG.lognormal(0, 1, 100), "units"),
        (RNG.normal(20, 1, 300), RNG.normal(0.02, 0.001, 100), "units"),
        (np.arange(300) % 5 * 2, np.arange(100) % 5 * 2 + 1, "values"),
        (np.full(300, 2025), np.full(100, 2026), "values"),
    ],
    ids=["rows", "shuffled", "seconds", "constant", "milli", "kilo", "codes", "years"],
)
def test_a_mistake_is_found_and_names_the_column(null, test, kind):
    assert kinds(*with_column(null, test)) == [(kind, ("b",))]


@pytest.mark.parametrize(
    ("null", "test"),
    [
        (np.linspace(0, 1, 300), np.linspace(1, 2, 100)),  # ordered, but no whole numbers
        (np.sort(RNG.normal(size=300)), RNG.normal(size=100)),
        (RNG.integers(0, 10**9, 300), RNG.integers(0, 10**9, 100)),  # amounts, all different
        (RNG.integers(0, 50, 300), RNG.integers(0, 50, 100)),
        (RNG.poisson(0.1, 300), RNG.poisson(0.1, 100) * 10_000),  # mostly zeros
        (RNG.lognormal(0, 3, 300), RNG.lognormal(0, 3, 100)),
        (RNG.normal(size=300), RNG.normal(5, 100, size=100)),
        (np.arange(300) % 5, np.arange(100) % 5 + 4),  # one value in common
    ],
    ids=["linspace", "sorted", "amounts", "counts", "zeros", "heavy tails", "wider", "codes"],
)
def test_other_columns_are_left_alone(null, test):
    assert kinds(*with_column(null, test)) == []


def test_sparse_whole_numbers_are_an_id_by_name_only():
    amounts = RNG.integers(0, 10**9, 300).astype(float)
    assert not looks_like_id(amounts, "amount")
    assert looks_like_id(amounts, "customer_id")
    assert not looks_like_id(np.append(amounts, amounts[0]), "customer_id")


def test_an_id_is_seen_in_a_sample_of_many_rows():
    every_eighth = RNG.permutation(8 * np.arange(2000.0))
    assert looks_like_id(every_eighth, "a", 16_000)
    assert not looks_like_id(every_eighth, "a")


def test_a_label_is_found_where_the_flags_repeat_it():
    novel = np.arange(100) < 8
    null, test = with_column(np.zeros(300), novel)
    assert label_finding(null, test, novel, list("abcd")).columns == ("b",)
    assert label_finding(null, test, np.roll(novel, 50), list("abcd")) is None
    assert label_finding(X_NULL, X_TEST, novel, list("abc")) is None


def test_a_column_that_the_flags_repeat_is_in_the_headline():
    result = cn.AdaDetect("logistic").detect(*with_column(np.zeros(300), np.arange(100) < 15))
    assert [one.kind for one in result.warnings] == ["one_value"]
    assert "not like today's rows: column 1 is 0 in all known normals" in result.headline
    assert "add known normals" in result.warnings[0].fix
    assert "--exclude '1'" in result.warnings[0].fix


def test_a_label_among_the_columns_is_in_the_headline():
    samples = with_column(np.zeros(300), np.arange(100) < 15)
    frames = (pd.DataFrame(sample, columns=["a", "changepoint", "c", "d"]) for sample in samples)
    result = cn.AdaDetect("logistic").detect(*frames)
    assert [one.kind for one in result.warnings] == ["label"]
    assert "A label is among the columns" in result.headline
    assert result.warnings[0].message.endswith("it looks like a label")


def test_few_known_normals_that_are_alike_by_chance_are_no_finding():
    # As in a hospital with eight healthy men, where ten of 115 patients are women.
    flags = np.arange(115) < 10
    null, test = np.zeros((8, 1)), flags.astype(float)[:, np.newaxis]
    assert label_finding(null, test, flags, ["sex"]) is None
    assert label_finding(np.zeros((800, 1)), test, flags, ["sex"]).kind == "one_value"


@pytest.mark.parametrize("name", ["label", "is_fraud", "Machine_failure", "y", "Attack"])
def test_a_column_that_is_called_a_label_is_found_without_flags(name):
    null, test = with_column(np.zeros(300), np.arange(100) < 8)
    names = ["a", name, "c", "d"]
    assert [one.columns for one in named_label_findings(null, test, names)] == [(name,)]
    assert named_label_findings(null, test, list("abcd")) == []
    assert named_label_findings(null, null[:50], names) == []  # it does not vary


@pytest.mark.parametrize(("n", "m", "d"), [(2, 1, 1), (3, 2, 4), (41, 1, 1), (50, 30, 700)])
def test_checks_work_on_few_rows_and_on_many_columns(n, m, d):
    null, test = RNG.normal(size=(n, d)), RNG.normal(size=(m, d))
    plain = cn.AdaDetect("logistic", level=0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cn.errors.ResolutionWarning)
        checked, unchecked = plain.detect(null, test), plain.detect(null, test, check=False)
    assert np.array_equal(checked.rejected, unchecked.rejected)
    assert {one.kind for one in checked.warnings} <= {"thin_calibration", "most_flagged"}
