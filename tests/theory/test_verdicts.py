"""Scores that learn from verdicts: the rate with fresh and with spent calibration rows.

There are many kinds of novelties: one of kind j is high in column j. Batch j is scored by column
j, among rows beyond all of null_train there. The row that is flagged and judged novel teaches a
later score to look at column j. Kinds are found where calibration rows and training rows happen to
be low. So for the later score both lie too low, and both are spent.
"""

import numpy as np
import pytest

import conovel as cn
from conovel.runs.ledger_records import BatchFacts
from conovel.stats.levels import as_level
from conovel.stats.ranks import conformal_ranks
from conovel.stats.stepup import step_up

KINDS, SIZE, M, LEVEL, SHIFT, LIST_LEVEL = 40, 99, 10, 0.1, 2.3, 0.2
# α(ℓ+1)/m = 1: a single row can be flagged, and the rate is exactly α times the share of nulls.


def first_epoch(rng, train, calibration, shift):
    """Test a batch for each kind; yield its kind, its ranks and what BH flags."""
    for kind in range(KINDS):
        rows = rng.normal(size=(M, KINDS))
        rows[0, kind] = shift
        beyond = train[:, kind].max()
        known, scores = (
            np.where(x[:, kind] > beyond, x[:, kind], -9.0) for x in (calibration, rows)
        )
        ranks = conformal_ranks(known, scores)
        yield kind, ranks, step_up([(ranks, SIZE)], as_level(LEVEL)).rejected[0]


def learnt(kinds):
    """Score rows by the columns of the kinds that were found; by the first one if none was."""
    return lambda rows: rows[:, kinds or [0]].max(axis=1)


def two_epochs(trial, n_novel, shift=SHIFT):
    """Flag, judge, learn, and flag again, with three choices of known normals to calibrate."""
    rng = np.random.default_rng([trial, 20])
    train, calibration, fresh = rng.normal(size=(3, SIZE, KINDS))
    batches = list(first_epoch(rng, train, calibration, shift))
    score = learnt([kind for kind, _, flagged in batches if flagged[0]])
    rows = rng.normal(size=(M, KINDS))
    rows[:n_novel] += 1.5
    choices = {"fresh": fresh, "same": calibration, "trained": train}
    later = {name: conformal_ranks(score(C), score(rows)) for name, C in choices.items()}
    return batches, later


def rates(trials, n_novel):
    """Return the rate of the later batch and its error, by the choice of calibration rows."""
    shares = {"fresh": [], "same": [], "trained": []}
    for trial in range(trials):
        for name, ranks in two_epochs(trial, n_novel)[1].items():
            rejected = step_up([(ranks, SIZE)], as_level(LEVEL)).rejected[0]
            shares[name].append(rejected[n_novel:].sum() / max(rejected.sum(), 1))
    return {name: (np.mean(one), np.std(one) / trials**0.5) for name, one in shares.items()}


def check_loop(trials, n_novel):
    found = rates(trials, n_novel)
    bound = LEVEL * (M - n_novel) / M
    rate, error = found["fresh"]
    assert abs(rate - bound) <= 3 * error  # it is attained
    for naive in ("same", "trained"):
        assert found[naive][0] > LEVEL + 6 * found[naive][1], found


@pytest.mark.parametrize("n_novel", [0, 2])
def test_the_naive_loop_breaks_the_level_and_fresh_calibration_rows_attain_it(n_novel):
    check_loop(500, n_novel)


@pytest.mark.slow
@pytest.mark.parametrize("n_novel", [0, 2])
def test_the_naive_loop_in_many_trials(n_novel):
    check_loop(8000, n_novel)


def listed_share(trial):
    """Return the share of false alarms on the list of both epochs, after the last batch."""
    batches, later = two_epochs(trial, 2, shift=3.5)
    ledger = cn.Ledger(LIST_LEVEL)
    for number, ranks in enumerate([*(ranks for _, ranks, _ in batches), later["fresh"]]):
        facts = BatchFacts("refitted", "a" * 64, "b" * 64, f"{number:064x}")
        ledger.add(ranks, SIZE, facts)
    *early, last = ledger.decisions()
    false = sum(int(mask[1:].sum()) for mask in early) + int(last[2:].sum())
    return false / max(ledger.n_listed, 1)


def check_list(trials):
    shares = [listed_share(trial) for trial in range(trials)]
    assert np.mean(shares) > 0  # rows are listed
    assert np.mean(shares) <= LIST_LEVEL + 3 * np.std(shares) / trials**0.5


def test_the_list_over_both_epochs():
    check_list(60)


@pytest.mark.slow
def test_the_list_over_both_epochs_in_many_trials():
    check_list(1000)


def detected_share(trial, folder):
    """Detect, judge, append fresh known normals, detect again: the share of the second batch."""
    rng = np.random.default_rng([trial, 21])
    book = cn.Verdicts(folder / f"{trial}.verdicts")
    detector = cn.AdaDetect("logistic", 0.2, random_state=trial)
    batches = rng.normal(size=(2, 20, 3))
    batches[:, :4] += 2.5
    known_normals = rng.normal(size=(399, 3))
    detector.detect(known_normals[:300], batches[0], verdicts=book, check=False)
    words = {i: "novel" if int(i) < 4 else "normal" for i in book.batches[0].ids}
    book.add(words, who="ana")
    result = detector.detect(known_normals, batches[1], verdicts=book, check=False)
    assert result.n_calibration == 99  # α(ℓ+1)/m = 1
    assert result.parts["verdicts"].n_spent == 300
    return result.rejected[4:].sum() / max(result.n_rejected, 1), bool(words)


def check_detections(trials, folder):
    shares, learnt_something = zip(
        *(detected_share(t, folder) for t in range(trials)), strict=True
    )
    assert np.mean(learnt_something) > 0.5
    error = np.std(shares) / trials**0.5
    assert abs(np.mean(shares) - 0.2 * 16 / 20) <= 3 * error


@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
def test_detections_that_learn_from_verdicts_attain_the_bound(tmp_path):
    check_detections(80, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
def test_detections_that_learn_from_verdicts_attain_the_bound_in_many_trials(tmp_path):
    check_detections(1000, tmp_path)
