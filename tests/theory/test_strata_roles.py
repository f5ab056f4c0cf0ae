"""Whole runs with strata and exchanged roles: nothing may change by a bit but the roles."""

import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import conovel as cn
from conovel.deciding.cell_groups import divide, told_weights
from conovel.deciding.strata import decide_strata
from conovel.runs.agents import open_sites, read_agents
from conovel.runs.one_site import read_samples
from conovel.runs.strata import find_site
from conovel.spec.training import ANY_SHARE, Numbers

NAMES = ("a", "b", "c")


def draw(seed, n, shares, *, far=0, duplicates=False):
    """Rows of three strata; the first column says which, and some are far from the others."""
    rng = np.random.default_rng(seed)
    strata = rng.choice(3, size=n, p=shares)
    rows = rng.normal(size=(n, 3)) + strata[:, np.newaxis]
    rows[::9] += far
    return np.column_stack([strata, rows.round(0 if duplicates else 9)])


def sample(seed, **options):
    null = draw(seed, 600, [0.6, 0.2, 0.2], **options)
    return null, draw(seed + 99, 160, [0.2, 0.3, 0.5], far=5, **options)


def exchange(null, test, split, stratum, *, n=6):
    """Put calibration rows and tests of a stratum in each other's places."""
    calibration = split.calibration[null[split.calibration, 0] == stratum][:n]
    tests = split.tests[test[split.tests, 0] == stratum][: calibration.size]
    null, test = null.copy(), test.copy()
    calibration = calibration[: tests.size]
    null[calibration], test[tests] = test[tests], null[calibration]
    return null, test, calibration, tests


def assert_same_but_for_roles(before, after, tests):
    """Tests that stay have the same score and cell, and the multiset of scores is the same."""
    others = np.setdiff1d(np.arange(before.scores.size), tests)
    assert before.scores[others].tobytes() == after.scores[others].tobytes()
    # cells are told only above floors, so they also say that floors are the same
    assert np.array_equal(before.cells[others], after.cells[others])
    assert np.array_equal(before.tested, after.tested)
    assert list(before.choices) == list(after.choices)


@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("scorer", [None, "logistic", "knn"])
def test_rows_of_a_stratum_may_exchange_roles_at_one_site(scorer, duplicates):
    null, test = sample(1, duplicates=duplicates)
    detector = cn.AdaDetect(scorer, strata="0")
    settings = detector.settings()
    split = find_site(read_samples(null, test, None, None, False), settings).strata.split(0)
    before = detector.detect(null, test, check=False)
    for stratum in (0, 1, 2):
        other_null, other_test, calibration, tests = exchange(null, test, split, stratum)
        after = detector.detect(other_null, other_test, check=False)
        assert_same_but_for_roles(before, after, tests)
        places = np.searchsorted(split.calibration, calibration)
        assert after.scores[tests].tobytes() == before.calibration_scores[places].tobytes()
        assert after.calibration_scores[places].tobytes() == before.scores[tests].tobytes()


@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
def test_rows_of_different_strata_are_not_exchangeable():
    null, test = sample(1)
    detector = cn.AdaDetect("logistic", strata="0")
    split = find_site(read_samples(null, test, None, None, False), detector.settings())
    split = split.strata.split(0)
    calibration = split.calibration[null[split.calibration, 0] == 0][:6]
    tests = split.tests[test[split.tests, 0] == 2][:6]
    other_null, other_test = null.copy(), test.copy()
    other_null[calibration], other_test[tests] = test[tests], null[calibration]
    before = detector.detect(null, test, check=False)
    after = detector.detect(other_null, other_test, check=False)
    with pytest.raises(AssertionError):
        assert_same_but_for_roles(before, after, tests)


@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
@pytest.mark.parametrize(
    ("regime", "masks"), [("together", False), ("together", True), ("joint", False)]
)
def test_rows_of_a_stratum_may_exchange_roles_in_a_network(regime, masks):
    samples = {name: sample(7 * j) for j, name in enumerate(NAMES)}

    def network(samples):
        agents = [cn.Agent(name, *pair) for name, pair in samples.items()]
        scorer = "logistic" if regime == "joint" else None
        return cn.Network(agents, regime=regime, masks=masks, scorer=scorer, strata="0")

    whole = network(samples)
    spec = whole.spec()
    sites = open_sites(spec, read_agents(spec, whole.agents, whole.scorer))
    numbers = {name: Numbers(*site.facts[:2]) for name, site in sites.items()}
    weights = dict(zip(NAMES, told_weights(divide(numbers, spec, 3), NAMES), strict=True))
    before = whole.run(check=False)
    changed, places = dict(samples), {}
    for name, site in sites.items():
        split = site.strata.split(weights[name])
        stratum = NAMES.index(name)
        null, test, _, places[name] = exchange(*samples[name], split, stratum)
        changed[name] = null, test
    after = network(changed).run(check=False)
    assert before.n_rejected > 0
    for name in NAMES:
        assert places[name].size
        assert_same_but_for_roles(before[name], after[name], places[name])


def test_a_split_does_not_depend_on_values():
    null, test = sample(3)
    shifted = null + np.array([0, 5, 5, 5]), test + np.array([0, -5, -5, -5])
    settings = cn.AdaDetect("logistic", strata="0").settings()
    splits = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for pair in ((null, test), shifted):
            splits.append(find_site(read_samples(*pair, None, None, False), settings))
    first, second = (site.strata.split(0) for site in splits)
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one, other)


def kept_pair(scorer, unlabelled, seed=1, duplicates=False):
    """A detector, its known normals, a batch, and which of its calibration rows the batch uses."""
    null, test = sample(seed, duplicates=duplicates)
    detector = cn.AdaDetect(scorer, strata="0", train_fraction="1/3")
    kept = detector.keep(null, unlabelled)
    places = kept.strata.in_batch(kept.read(test), kept.level).split(Fraction(0)).calibration
    return detector, kept, null, test, kept.strata.scores[places]


def exchanged(null, test, scores, used, own, strata):
    """Exchange calibration rows that a batch uses with its tests; of each the stratum is given."""
    of_null, of_test = strata
    usable = np.flatnonzero(np.isin(scores, used) & (null[:, 0] == of_null))[:5]
    tests = np.flatnonzero(test[:, 0] == of_test)[: usable.size]
    usable = usable[: tests.size]
    null, test = null.copy(), test.copy()
    null[usable], test[tests] = test[tests], null[usable]
    assert own is None or usable.size == own
    return null, test, tests


def state(result, level=Fraction(1, 20)):
    """What may not depend on roles: floors of the batch, and those of its evidence for a list."""
    decided = result.parts["decided"]
    outcome = decide_strata(decided.decided.counts, decided.decided.groups, level, Fraction(1, 20))
    return decided.decided.floors, outcome.floors, decided.decided.groups


@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
@pytest.mark.parametrize("scorer", ["logistic", "isolation-forest"])
def test_rows_of_a_stratum_may_exchange_roles_with_a_kept_detector(scorer):
    unlabelled = sample(5)[1] if scorer == "logistic" else None
    detector, kept, null, test, used = kept_pair(scorer, unlabelled)
    before = kept.detect(test, check=False)
    assert before.n_rejected > 0
    for stratum in (0, 1, 2):
        rows = exchanged(null, test, kept.score(null), used, 5, (stratum, stratum))
        other_null, other_test, tests = rows
        other = detector.keep(other_null, unlabelled)
        assert other.model.arrays.keys() == kept.model.arrays.keys()
        after = other.detect(other_test, check=False)
        assert_same_but_for_roles(before, after, tests)
        assert state(before) == state(after)
        both = [
            np.concatenate([r.calibration_scores, r.scores[r.tested]]) for r in (before, after)
        ]
        assert np.sort(both[0]).tobytes() == np.sort(both[1]).tobytes()


@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
def test_rows_of_different_strata_do_not_exchange_roles_with_a_kept_detector():
    unlabelled = sample(5)[1]
    detector, kept, null, test, used = kept_pair("logistic", unlabelled)
    before = kept.detect(test, check=False)
    other_null, other_test, tests = exchanged(null, test, kept.score(null), used, 5, (0, 2))
    after = detector.keep(other_null, unlabelled).detect(other_test, check=False)
    with pytest.raises(AssertionError):
        assert_same_but_for_roles(before, after, tests)


@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
def test_the_evidence_of_a_batch_does_not_see_roles():
    null, test = sample(1)
    detector = cn.AdaDetect("logistic", strata="0")
    settings = replace(detector.settings(), least=ANY_SHARE)
    split = find_site(read_samples(null, test, None, None, False), settings).strata.split(0)
    before = detector.detect(null, test, check=False, ledger=cn.Ledger())
    assert before.parts["decided"].decided.n_rejected > 0
    other_null, other_test, _, tests = exchange(null, test, split, 2)
    after = detector.detect(other_null, other_test, check=False, ledger=cn.Ledger())
    assert_same_but_for_roles(before, after, tests)
    assert state(before) == state(after)
