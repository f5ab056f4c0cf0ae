"""A finding about a drift says what to run, and then the drift is gone."""

import re
import subprocess
import warnings

import numpy as np
import pandas as pd
import pytest

import conovel as cn
from conovel.site.checks.columns import few_values, shares_apart
from conovel.site.checks.remedies import within_strata

SKAB = {"Current": (1.3, 0.3), "Flow": (32, 0.6), "Pressure": (0.05, 0.2)}


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def drifts(null, test, **options):
    found = cn.AdaDetect("logistic", **options).detect(null, test)
    return [one for one in found.warnings if one.kind == "drift"]


def sensors(rng, n, warmth):
    """Rows of a pump in the order of time, as the files of SKAB have them."""
    frame = pd.DataFrame({name: rng.normal(*how, n) for name, how in SKAB.items()})
    return frame.assign(Temperature=rng.normal(warmth, 0.4, n))


def with_faults(rows, n=20):
    return rows.assign(Current=np.where(np.arange(len(rows)) < n, 5.0, rows["Current"]))


@pytest.mark.parametrize("seed", range(3))
def test_the_last_window_ends_a_step_in_time(seed):
    rng = np.random.default_rng(seed)
    null = pd.concat([sensors(rng, 600, 68), sensors(rng, 900, 72)], ignore_index=True)
    test = with_faults(sensors(rng, 300, 72))
    [finding] = drifts(null, test)
    assert finding.columns == ("Temperature",)
    n = int(re.search(r"X_null\[-(\d+):\]", finding.fix)[1])
    assert 100 <= n <= 900
    assert not drifts(null[-n:], test)


def test_the_command_that_is_named_writes_the_last_window(tmp_path):
    rng = np.random.default_rng(0)
    null = pd.concat([sensors(rng, 600, 68), sensors(rng, 900, 72)], ignore_index=True)
    test = with_faults(sensors(rng, 300, 72))
    null.to_csv(tmp_path / "normal.csv", index=False)
    [finding] = drifts(null, test)
    command = re.search(r"\(head .*?\) > recent\.csv", finding.fix)[0]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    recent = pd.read_csv(tmp_path / "recent.csv")
    assert np.allclose(recent, null[-len(recent) :])
    assert not drifts(recent, test)


@pytest.mark.parametrize("seed", range(3))
def test_where_no_window_helps_a_fresh_sample_or_fewer_columns_do(seed):
    rng = np.random.default_rng(seed)
    null = pd.concat([sensors(rng, 600, 68), sensors(rng, 900, 72)], ignore_index=True)
    later = sensors(rng, 900, 76)
    test = with_faults(later[600:].reset_index(drop=True))
    [finding] = drifts(null, test)
    assert "X_null[-" not in finding.fix
    assert "take a fresh sample" in finding.fix
    assert not drifts(later[:600], test)
    left_out = re.findall(r"--exclude '([^']+)'", finding.fix)
    assert left_out == ["Temperature"]
    assert not drifts(null.drop(columns=left_out), test.drop(columns=left_out))


def machines(rng, n, shares, in_order=False):
    """Rows of AI4I: products of three types, each with its own load and wear."""
    kind = rng.choice(3, n, p=shares)
    kind = np.sort(kind) if in_order else kind
    torque = rng.normal(40 + 6 * kind, 3)
    return pd.DataFrame(
        {
            "Type": np.array(["L", "M", "H"])[kind],
            "Torque": torque,
            "Speed": rng.normal(1500 - 10 * (torque - 40), 40),
            "Tool wear": rng.uniform(0, 240, n),
        }
    )


BEFORE, NOW = (0.7, 0.2, 0.1), (0.2, 0.3, 0.5)


@pytest.mark.parametrize("in_order", [True, False], ids=["sorted", "shuffled"])
@pytest.mark.parametrize("seed", range(3))
def test_another_mix_of_types_asks_for_strata(seed, in_order):
    rng = np.random.default_rng(seed)
    null = machines(rng, 1500, BEFORE, in_order)
    test = machines(rng, 400, NOW)
    [finding] = drifts(null, test)
    assert "use --strata 'Type', or strata='Type' in Python" in finding.fix
    assert "Type" in finding.columns or in_order
    # Within a type nothing is found; as long as there are no strata, one type at a time shows it.
    for kind in "LMH":
        assert not drifts(
            *(rows[rows["Type"] == kind].drop(columns="Type") for rows in (null, test))
        )
    assert not drifts(machines(rng, 1500, NOW), test)


def test_a_drift_within_types_does_not_ask_for_strata():
    rng = np.random.default_rng(0)
    null, test = machines(rng, 1500, BEFORE, in_order=True), machines(rng, 400, NOW)
    null["Speed"] += np.arange(1500) / 5
    test["Speed"] += 400
    [finding] = drifts(null, test)
    assert "--strata" not in finding.fix


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_novelties_of_one_type_are_no_other_mix(share):
    rng = np.random.default_rng(0)
    null, test = machines(rng, 1500, BEFORE), machines(rng, 400, BEFORE)
    test.loc[: int(400 * share), "Type"] = "H"
    assert not drifts(null, test)


def test_ranks_within_strata_tell_neither_shares_nor_levels():
    rng = np.random.default_rng(0)
    null, test = machines(rng, 3000, BEFORE), machines(rng, 3000, NOW)
    strata = [rows["Type"].astype("category").cat.codes.to_numpy() for rows in (null, test)]
    values = [rows[["Torque", "Speed"]].to_numpy() for rows in (null, test)]
    assert abs(values[0].mean(axis=0) - values[1].mean(axis=0)).min() > 3
    ranks = within_strata(*values, *strata)
    assert all(len(part) == 3000 for part in ranks)
    assert abs(ranks[0].mean(axis=0) - ranks[1].mean(axis=0)).max() < 0.03


def test_few_values_and_their_shares():
    one_hot = np.eye(3)[np.arange(60) % 3]
    null, test = few_values(one_hot, one_hot[:30])
    assert shares_apart(null, test) == 0
    assert few_values(np.arange(60.0)[:, np.newaxis], np.arange(60.0)[:, np.newaxis]) is None
    assert few_values(np.ones((60, 1)), np.ones((60, 1))) is None
