"""`conovel schema` for others: no rare values, and all columns may be missing."""

import numpy as np
import pandas as pd
import pytest
from support.commands import invoke

import conovel as cn


@pytest.fixture
def written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, n in (("null", 900), ("test", 300)):
        pd.DataFrame(
            {
                "amount": rng.normal(size=n).round(4),
                "address": [f"10.0.0.{i % 350}" for i in range(n)],
                "city": rng.choice(["Ulm", "Bonn"], n),
                "branch": np.where(np.arange(n) < 3, "Kleinstadt", rng.choice(["a", "b"], n)),
            }
        ).to_csv(f"{name}.csv", index=False)

    def command(*options):
        outcome = invoke(
            capsys, monkeypatch, "schema", "--null", "null.csv", "--test", "test.csv", *options
        )
        assert outcome.code == 0, outcome.err
        return cn.Schema.from_toml(outcome.out), outcome

    return command


def test_values_that_few_rows_have_are_not_written(written):
    schema, outcome = written()
    assert "10.0." not in outcome.out
    assert "Kleinstadt" not in outcome.out
    assert set(schema["branch"].levels) == {"a", "b"}
    assert schema["address"].buckets == 32
    assert set(schema["city"].levels) == {"Ulm", "Bonn"}
    assert "address: " in outcome.err
    assert "values that fewer than 10 rows have are not written" in outcome.err
    assert "--rare" in outcome.err


def test_they_are_written_by_request(written):
    schema, outcome = written("--rare")
    assert "10.0." in outcome.out
    assert "Kleinstadt" in {*schema["branch"].levels, *schema["branch"].rare}
    assert "not written" not in outcome.err


def test_a_run_takes_such_a_schema_and_refuses_one_of_one_role_still(written):
    schema, _ = written()
    null, test = pd.read_csv("null.csv"), pd.read_csv("test.csv")
    result = cn.AdaDetect("logistic", schema=schema).detect(null, test)
    assert result.columns_used == ("amount", "address", "city", "branch")


def test_all_columns_may_be_missing(written):
    schema, _ = written("--may-be-missing")
    assert all(column.missing for column in schema.used)
    assert schema["amount"].fill == pytest.approx(0, abs=0.2)
    null, test = pd.read_csv("null.csv"), pd.read_csv("test.csv")
    agents = [
        cn.Agent("a", null, test),
        cn.Agent("b", null.assign(city=None), test.assign(city=None)),
    ]
    run = cn.Network(agents, schema=schema, scorer="logistic").run()
    assert set(run) == {"a", "b"}
