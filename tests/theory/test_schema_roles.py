"""A schema may not follow from one role: what is refused, and that what is taken is valid."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.roles import assert_roles_do_not_matter, in_detector, in_network, numbered, of_tables

import conovel as cn
from conovel.errors import InputError
from conovel.rows.storage import write_table
from conovel.runs.file_detection import detect_files

KINDS = {"c": "category"}
LEVEL = 0.1


def draw(rng, n):
    """Draw normal rows with a category of 1,000 levels, most of which a sample lacks."""
    return pd.DataFrame(
        {"x": rng.normal(size=n), "c": [f"l{i}" for i in rng.integers(0, 1000, n)]}
    )


def drawn_pair(seed, n=400, m=100):
    rng = np.random.default_rng(seed)
    return draw(rng, n), draw(rng, m), draw(rng, n)


def schemas(null, test, other):
    """Make a schema in every way: those that are refused, and those that are valid."""
    return {
        "null": cn.infer_schema(null, kinds=KINDS),
        "test": cn.infer_schema(test, kinds=KINDS),
        "both": cn.infer_schema(null, test, kinds=KINDS),
        "other": cn.infer_schema(other, kinds=KINDS),
        "written": cn.Schema.from_dict({"x": "number", "c": {"kind": "category", "buckets": 32}}),
    }


def agents_of(seed, n_agents=2):
    rows = [drawn_pair(10 * seed + j) for j in range(n_agents)]
    return [cn.Agent(name, *pair[:2]) for name, pair in zip("abc", rows, strict=False)]


@pytest.mark.parametrize("how", ["null", "test"])
def test_a_detector_refuses_a_schema_of_one_role(how):
    null, test, other = drawn_pair(0)
    schema = schemas(null, test, other)[how]
    with pytest.raises(InputError, match="infer_schema with two tables"):
        cn.AdaDetect("logistic", schema=schema).detect(null, test)
    shuffled = null.sample(frac=1, random_state=0)[["c", "x"]]
    forms = shuffled, pa.Table.from_pandas(shuffled, preserve_index=False)
    for form in (*forms, shuffled.astype({"x": "float32"})):
        with pytest.raises(InputError, match="false discovery rate is not controlled"):
            cn.AdaDetect("logistic", schema=schema).detect(form, test)
    with pytest.raises(InputError, match="not controlled"):
        cn.AdaDetect("logistic", schema=schema).fit(null).predict(test)


def without_memory(schema):
    """Give a schema that forgot what it was made from, as every schema did before."""
    return cn.Schema(schema.columns)


@pytest.mark.parametrize(
    "scorer", [pytest.param("random-forest", marks=pytest.mark.slow), "boosting"]
)
def test_one_site_breaks_the_level_by_a_schema_of_its_normals_and_by_no_other(scorer):
    """All rows are normal, so that every rejection is false."""
    false = dict.fromkeys(["null", "both", "other", "written"], 0)
    for seed in range(3):
        rows = drawn_pair(seed)
        made = schemas(*rows)
        for how in false:
            schema = without_memory(made[how]) if how == "null" else made[how]
            found = cn.AdaDetect(scorer, LEVEL, schema=schema).detect(*rows[:2], check=False)
            false[how] += found.n_rejected > 0
    assert false["null"] == 3  # what is refused: FDR 1
    assert max(false["both"], false["other"], false["written"]) <= 1


@pytest.mark.parametrize("regime", ["joint", "full"])
def test_a_network_refuses_a_schema_of_known_normals(regime):
    agents = agents_of(0)
    for nulls in ([agents[0].X_null], [agent.X_null for agent in agents]):
        schema = cn.infer_schema(pd.concat(nulls), kinds=KINDS)
        network = cn.Network(agents, regime=regime, scorer="logistic", schema=schema)
        with pytest.raises(InputError, match="from the known normals and not from the test rows"):
            network.run()


@pytest.mark.parametrize("regime", ["joint", pytest.param("full", marks=pytest.mark.slow)])
def test_a_network_keeps_the_level_with_a_valid_schema(regime):
    n_false = {"null": 0, "both": 0, "other": 0}
    for seed in range(2):
        agents = agents_of(seed)
        pooled = pd.concat([agent.X_null for agent in agents])
        made = {
            "null": without_memory(cn.infer_schema(pooled, kinds=KINDS)),
            "both": cn.infer_schema(agents[0].X_null, agents[0].X_test, kinds=KINDS),
            "other": cn.infer_schema(drawn_pair(seed)[2], kinds=KINDS),
        }
        for how, schema in made.items():
            options = {"level": LEVEL, "composite": "mean", "scorer": "boosting"}
            network = cn.Network(agents, regime=regime, schema=schema, **options)
            n_false[how] += network.run(check=False).n_rejected > 0
    assert n_false == {"null": 2, "both": 0, "other": 0}  # what is refused breaks the level


@pytest.mark.parametrize("regime", ["consensus", "pooled"])
def test_regimes_that_compare_rows_of_agents_take_no_schema_of_one_of_them(regime):
    agents = agents_of(0)
    made = schemas(agents[0].X_null, agents[0].X_test, drawn_pair(99)[2])

    def network(schema):
        return cn.Network(agents, regime=regime, scorer="logistic", schema=schema)

    with pytest.raises(InputError, match="must follow from no row of the run"):
        network(made["both"]).run()
    for how in ("other", "written"):
        assert list(network(made[how]).run(check=False)) == ["a", "b"]


def test_another_batch_needs_another_schema():
    """The normals are known to the schema of the first batch, the second batch is not."""
    null, first, second = drawn_pair(1)
    schema = cn.infer_schema(null, first, kinds=KINDS)
    detector = cn.AdaDetect("logistic", schema=schema)
    assert detector.detect(null, first, check=False).rejected.size == len(first)
    with pytest.raises(InputError, match="from the known normals and not from the test rows"):
        detector.detect(null, second)


def test_a_kept_detector_refuses_a_schema_of_its_calibration_rows():
    null, unlabelled, other = drawn_pair(2)
    for refused in (
        cn.infer_schema(null, kinds=KINDS),
        cn.infer_schema(null, unlabelled, kinds=KINDS),
    ):
        with pytest.raises(InputError, match="rows that are tested later"):
            cn.AdaDetect("logistic", schema=refused).keep(null, unlabelled)
    for taken in (other, unlabelled):
        schema = cn.infer_schema(taken, kinds=KINDS)
        assert cn.AdaDetect("logistic", schema=schema).keep(null, unlabelled).schema == schema


def test_a_list_of_batches_refuses_it_as_well(tmp_path):
    null, test, _ = drawn_pair(3)
    schema = cn.infer_schema(null, kinds=KINDS | {"x": "ignore"})
    with pytest.raises(InputError, match="not controlled"):
        cn.AdaDetect("logistic", schema=schema).detect(null, test, ledger=tmp_path / "l.json")


def test_files_in_pieces_refuse_it(tmp_path):
    null, test, other = drawn_pair(4)
    paths = [tmp_path / "null.parquet", tmp_path / "test.csv"]
    for path, frame in zip(paths, (null, test), strict=True):
        write_table(path, {name: frame[name].to_numpy() for name in frame})
    made, out = schemas(null, test, other), tmp_path / "out.csv"
    for how in ("null", "test"):
        with pytest.raises(InputError, match="not controlled"):
            detect_files(cn.AdaDetect("logistic", schema=made[how]), *paths, out)
    for how in ("both", "other"):
        detector = cn.AdaDetect("logistic", schema=made[how])
        assert detect_files(detector, *paths, out).histogram.size == len(test)


def mixed_rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    levels = [f"c{i}" for i in rng.integers(0, 60, n)]
    held = pd.Series(rng.normal(size=n).round(1)).mask(rng.random(n) < 0.2)
    return pd.DataFrame({"x": rng.normal(size=n).round(1), "c": levels, "y": held})


def with_schema(runner, of):
    """Make the schema anew for the samples of each run."""

    def run(samples, scorer, blocks):
        schema = None if blocks is None else of(samples)
        return runner(schema=schema)(samples, scorer, blocks)

    return run


@pytest.mark.parametrize("regime", [None, "joint", "full", "split"])
def test_a_schema_of_both_samples_does_not_see_roles(regime):
    def runner(schema):
        if regime is None:
            return in_detector(level="1/5", schema=schema)
        return in_network(regime=regime, level="1/5", schema=schema)

    def both(samples):
        return cn.infer_schema(*samples[0], kinds=KINDS)

    run = of_tables(with_schema(runner, both), mixed_rows())
    sizes = [(60, 24)] if regime is None else [(60, 24), (64, 26)]
    splits = regime == "split"
    assert_roles_do_not_matter(run, numbered(*sizes), "logistic", splits_rows=splits)


def test_a_schema_of_known_normals_sees_roles():
    def of_nulls(samples):
        return without_memory(cn.infer_schema(samples[0].X_null, kinds=KINDS))

    def runner(schema):
        return in_detector(level="1/5", schema=schema)

    run = of_tables(with_schema(runner, of_nulls), mixed_rows().drop(columns="y"))
    with pytest.raises(AssertionError, match="have other scores"):
        assert_roles_do_not_matter(run, numbered((60, 24)), "logistic")


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
