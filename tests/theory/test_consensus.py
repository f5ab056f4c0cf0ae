"""`consensus` in whole runs: roles exchanged bit for bit, and false alarms over composite nulls.

A null row may be exchanged with a calibration row of its type, wherever it is tested. The score of
its fold must not notice: neither row has taken part in it.
"""

import warnings
from fractions import Fraction

import numpy as np
import pytest

import conovel as cn
from conovel.deciding.folds import joined_folds
from conovel.errors import ConovelWarning
from conovel.models.linear import expit
from conovel.protocol.replay import verify
from conovel.rows.pairs import read_pair
from conovel.scorers.argument import as_candidates
from conovel.site.consensus import cells_of, draw_folds
from conovel.site.folds import count_cells
from conovel.site.site import Site
from conovel.site.work import SiteWork
from conovel.spec.bodies import Ready
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import N_CELLS
from conovel.stats.consensus import Calibration, Fold, decide_folds

NAMES = ("east", "north", "west")


# Roles ---------------------------------------------------------------------------------------


def samples(kind, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for j in range(3):
        null, test = rng.normal(size=(60, 3)) + j, rng.normal(size=(31, 3)) + j
        test[-4:] += 5
        if kind == "integers":
            null, test = np.rint(null), np.rint(test)
        found.append((null, test))
    return found


def worked(rows, scorer, bits="compact"):
    """Let three sites work without messages; give them, and everybody's second models."""
    sites = []
    for j, (null, test) in enumerate(rows):
        spec = RunSpec.of(regime="consensus", level="1/5", seed=j, bits=bits)
        work = SiteWork(spec, tuple(as_candidates(scorer, j)), 3)
        sites.append(Site(*read_pair(null, test), work))
    firsts = [site.describe(j, NAMES) for j, site in enumerate(sites)]
    seconds = {}
    for j, site in enumerate(sites):
        peers = {NAMES[i]: firsts[i][NAMES[j]] for i in range(3) if i != j}
        seconds[NAMES[j]] = tuple(site.refit(peers))
    for site in sites:
        site.compare(seconds)
    return sites, seconds


@pytest.mark.parametrize(
    ("scorer", "kind"),
    [
        (None, "continuous"),
        (None, "integers"),
        ("logistic", "integers"),
        pytest.param("random-forest", "continuous", marks=pytest.mark.slow),
        pytest.param("random-forest", "integers", marks=pytest.mark.slow),
    ],
)
def test_exchanging_a_tested_row_with_a_calibration_row_of_any_agent(kind, scorer, few_trees):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConovelWarning)
        rows = samples(kind)
        before, models = worked(rows, scorer)
        for fold, at, of in ((0, 0, 0), (1, 0, 2), (0, 2, 1)):
            train, calibration = before[of].split(60)
            assert not set(train) & set(calibration)
            c, x = calibration[3], np.flatnonzero(before[at].folds == fold)[5]
            swapped = [(null.copy(), test.copy()) for null, test in rows]
            swapped[of][0][c], swapped[at][1][x] = rows[at][1][x], rows[of][0][c]
            after, others = worked(swapped, scorer)
            assert all(others[name][fold] == models[name][fold] for name in NAMES)
            for one, two in zip(before, after, strict=True):
                same = one.folds == fold
                if one is before[at]:
                    same &= np.arange(31) != x
                assert np.array_equal(one.scores[same], two.scores[same])
                assert np.array_equal(one.folds, two.folds)


def test_exchanging_the_only_test_row_of_an_agent():
    """One fold has none of its tests. Nothing is learnt from the row, by anybody."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConovelWarning)
        rows = samples("continuous")
        rows[0] = (rows[0][0], rows[0][1][:1])
        before, models = worked(rows, None)
        for of in range(3):
            _, calibration = before[of].split(60)
            c = calibration[3]
            swapped = [(null.copy(), test.copy()) for null, test in rows]
            swapped[of][0][c], swapped[0][1][0] = rows[0][1][0], rows[of][0][c]
            after, others = worked(swapped, None)
            assert others == models
            for one, two in zip(before[1:], after[1:], strict=True):
                assert np.array_equal(one.scores, two.scores)


@pytest.mark.parametrize("numbers", [(1, 100, 100), (1, 1, 100), (1, 1, 1)])
def test_an_agent_with_one_test_row_takes_part(numbers):
    rng = np.random.default_rng(3)
    agents, novel = [], {}
    for name, n in zip(NAMES, numbers, strict=True):
        novel[name] = np.arange(n) < max(1, n // 5)
        rows = rng.normal(size=(n, 3)) + 5.0 * novel[name][:, np.newaxis]
        agents.append(cn.Agent(name, rng.normal(size=(400, 3)), rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConovelWarning)
        run = cn.Network(agents, regime="consensus", level=0.2).run()
    assert verify(run.to_dict()) == []
    for name in NAMES:  # its model hides nothing from the others
        assert run[name].tested.all()
        assert run[name].rejected[novel[name]].all()


def test_every_agent_has_the_same_score():
    rows = samples("continuous")
    common = rows[0][1][:5]
    rows = [(null, np.vstack([common, test])) for null, test in rows]
    sites, _ = worked(rows, None)
    for k in range(5):
        by_fold = {}
        for site in sites:
            by_fold.setdefault(site.folds[k], set()).add(site.scores[k].tobytes())
        assert all(len(found) == 1 for found in by_fold.values())


def test_calibration_rows_take_no_part_in_any_model():
    rows = samples("continuous")
    sites, models = worked(rows, None)
    _, calibration = sites[1].split(60)
    moved = [(null.copy(), test) for null, test in rows]
    moved[1][0][calibration] += 100
    assert worked(moved, None)[1] == models


# False alarms --------------------------------------------------------------------------------

LEVEL = Fraction(1, 5)


def roaming(rng, share, shift=3.0, n_null=240, n_test=90, n_novel=9):
    """Three agents around a centre; a share of the normal tests is from another agent."""
    centres = shift * np.array([[1, 0], [-0.5, 0.87], [-0.5, -0.87]])
    novel = np.array([0.0, 0.0, 4.5])
    found = []
    for j in range(3):
        types = np.full(n_test, j)
        n_roam = round(share * (n_test - n_novel))
        types[:n_roam] = rng.choice([k for k in range(3) if k != j], size=n_roam)
        types[n_test - n_novel :] = -1
        means = np.column_stack([centres[types], np.zeros(n_test)])
        means[types < 0] = novel
        null = rng.normal(size=(n_null, 3)) + np.append(centres[j], 0)
        found.append((null, rng.normal(size=(n_test, 3)) + means, types))
    return found


def proportions(run, data):
    """The false discovery proportion over composite nulls, and the share of novelties found."""
    types = np.concatenate([types for *_, types in data])
    rejected = np.concatenate([run[name].rejected for name in NAMES])
    false = np.count_nonzero(rejected & (types >= 0))
    return false / max(1, np.count_nonzero(rejected)), rejected[types < 0].mean()


def simulate(regime, n, share=0.3, **design):
    found = []
    for seed in range(n):
        data = roaming(np.random.default_rng(seed), share, **design)
        agents = [cn.Agent(name, *rows[:2]) for name, rows in zip(NAMES, data, strict=True)]
        scorer = None if regime == "consensus" else "logistic"  # both are linear here
        options = {"composite": "max", "bits": 8} if regime == "split" else {"composite": "mean"}
        run = cn.Network(
            agents, regime=regime, scorer=scorer, level=LEVEL, random_state=seed, **options
        ).run(check=False)
        found.append(proportions(run, data))
    return np.array(found)


def mean_and_error(values):
    return values.mean(), values.std() / len(values) ** 0.5


@pytest.mark.filterwarnings("ignore::conovel.ConovelWarning")
def test_only_consensus_keeps_the_level_for_composite_nulls():
    false, power = simulate("consensus", 30).T
    mean, error = mean_and_error(false)
    assert mean <= LEVEL + 3 * error
    assert power.mean() > 0.3
    mean, error = mean_and_error(simulate("full", 8)[:, 0])
    assert mean > LEVEL + 3 * error


def cheap_cells(data, seed, fold, *, by_heart=False):
    """Cells of calibration and test rows of every agent, by a score that numpy learns at once.

    The mean of novelties is that of the rows of the other fold that are far from all agents. With
    `by_heart`, every row of the fold itself is said to be a novelty.
    """
    trained, known = zip(*((null[::2], null[1::2]) for null, *_ in data), strict=True)
    folds = draw_folds(len(data[0][1]), seed)
    centres = np.array([rows.mean(axis=0) for rows in trained])
    learnt = np.vstack([test[folds != fold] for _, test, _ in data])
    distances = ((learnt[:, np.newaxis] - centres) ** 2).sum(axis=2)
    far = distances.min(axis=1) > 12
    novel = learnt[far].mean(axis=0) if far.any() else learnt.mean(axis=0)
    slopes, middles = novel - centres, (novel + centres) / 2

    def cells(rows):
        odds = rows @ slopes.T - (slopes * middles).sum(axis=1)
        return cells_of(expit(odds.min(axis=1)))

    tests = [cells(test) for _, test, _ in data]
    if by_heart:
        tests = [np.where(folds == fold, N_CELLS - 1, found) for found in tests]
    return [cells(rows) for rows in known], tests, folds


def cheap_proportion(seed, share, **options):
    """The false discovery proportion of one repetition with the cheap score."""
    data = roaming(np.random.default_rng(seed), share)
    scored = [cheap_cells(data, seed, fold, **options) for fold in (0, 1)]
    folds = []
    for fold, (known, tests, of) in enumerate(scored):
        own, other = (np.concatenate([t[of == f] for t in tests]) for f in (fold, 1 - fold))
        types = tuple(Calibration(cells.size, count_cells(cells)) for cells in known)
        counted = (own.size, other.size, count_cells(own), count_cells(other), types)
        folds.append(Fold(*counted))
    limits = decide_folds(folds, LEVEL).cells
    rejected = np.concatenate(
        [
            np.where(of == 0, first >= limits[0], second >= limits[1])
            for first, second, of in zip(
                scored[0][1], scored[1][1], [scored[0][2]] * 3, strict=True
            )
        ]
    )
    false = rejected & (np.concatenate([types for *_, types in data]) >= 0)
    return np.count_nonzero(false) / max(1, np.count_nonzero(rejected))


def cheap_proportions(n, share, **options):
    return np.array([cheap_proportion(seed, share, **options) for seed in range(n)])


def test_a_score_that_knows_the_tested_rows_breaks_the_level():
    """What a peer could do that sees the other second models before it makes its own."""
    mean, error = mean_and_error(cheap_proportions(40, 0.3))
    assert mean <= LEVEL + 3 * error
    assert cheap_proportions(5, 0.3, by_heart=True).mean() > 4 * LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_many_repetitions_keep_the_level(share):
    mean, error = mean_and_error(cheap_proportions(4000, share))
    assert mean <= float(LEVEL) + 3 * error


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::conovel.ConovelWarning")
@pytest.mark.parametrize("regime", ["full", "split"])
def test_many_runs_of_other_regimes_break_it(regime):
    mean, error = mean_and_error(simulate(regime, 300, share=0.5)[:, 0])
    assert mean > float(LEVEL) + 3 * error


def evidence_of_nulls(seed, beta):
    """The mean e-value of null rows of one type, at two agents of which one is no type."""
    rng = np.random.default_rng(seed)
    data = [(rng.normal(size=(120, 2)), rng.normal(size=(24, 2))), (rng.normal(size=(20, 2)),) * 2]
    data[1] = (data[1][0][:2], rng.normal(size=(24, 2)))
    for _, test in data:
        test[12:] += 3  # found in every run, so that the threshold exists
    agents = [cn.Agent(name, *rows) for name, rows in zip("ab", data, strict=True)]
    run = cn.Network(agents, regime="consensus", level=LEVEL, random_state=seed)
    run = run.run(check=False)
    transcript = run.transcript
    assert transcript.uncovered == ("b",)
    ready = {n: Ready(s.n_tested, s.n_calibration) for n, s in transcript.agents.items()}
    values = []
    for f, fold in enumerate(joined_folds(transcript.folds, ready, ["a"])):
        stop = fold.stop(beta)
        for name in "ab":
            cells = run[name].cells[:12][run[name].roaming.folds[:12] == f]
            values += [float(1 / stop.p_value) if cell >= stop.cell else 0.0 for cell in cells]
    return np.mean(values), len(verify(run.to_dict()))


@pytest.mark.filterwarnings("ignore::conovel.ConovelWarning")
def test_the_evidence_of_null_rows_is_one_on_average():
    found = np.array([evidence_of_nulls(seed, Fraction(1, 2)) for seed in range(60)])
    mean, error = mean_and_error(found[:, 0])
    assert abs(mean - 1) <= 3 * error
    assert not found[:, 1].any()


def cheap_evidence(seed):
    """The mean e-value of null rows with the cheap score, where there is one type."""
    rng = np.random.default_rng(seed)
    null, test = rng.normal(size=(240, 2)), rng.normal(size=(48, 2))
    test[24:] += 3  # found in every repetition, so that the threshold exists
    values = []
    for fold in (0, 1):
        (known,), (cells,), folds = cheap_cells([(null, test, None)], seed, fold)
        own, other = cells[folds == fold], cells[folds != fold]
        counted = own.size, other.size, count_cells(own), count_cells(other)
        stop = Fold(*counted, (Calibration(known.size, count_cells(known)),)).stop(Fraction(1, 2))
        null_cells = cells[:24][folds[:24] == fold]
        values += [float(1 / stop.p_value) if cell >= stop.cell else 0.0 for cell in null_cells]
    return np.mean(values)


@pytest.mark.slow
def test_the_evidence_of_null_rows_is_one_in_many_repetitions():
    mean, error = mean_and_error(np.array([cheap_evidence(seed) for seed in range(8000)]))
    assert abs(mean - 1) <= 3 * error
    assert error < 0.01


# To whom a row is normal ---------------------------------------------------------------------


def test_the_origin_of_roaming_rows_is_recovered():
    data = roaming(np.random.default_rng(1), 0.4, shift=5.0, n_null=300, n_test=120)
    agents = [cn.Agent(name, *rows[:2]) for name, rows in zip(NAMES, data, strict=True)]
    run = cn.Network(agents, regime="consensus").run()
    for j, name in enumerate(NAMES):
        types, told = data[j][2], run[name].normal_at
        away = [(NAMES[t], told[i]) for i, t in enumerate(types) if t not in (j, -1)]
        assert np.mean([origin in names for origin, names in away]) > 0.75
        assert np.mean([name in names for _, names in away]) < 0.3
        assert np.mean([told[i] == () for i in np.flatnonzero(types < 0)]) > 0.8
    assert verify(run.to_dict()) == []
