"""The ledger: what it takes, what it refuses, and a file that survives being killed."""

import json
import multiprocessing
import os
import signal
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import conovel as cn
from conovel.errors import BatchRefusedError, InputError, SavedFileError
from conovel.runs.ledger_file import _checksum, read_ledger, take_batch
from conovel.runs.ledger_records import BatchFacts, content_digest
from conovel.stats.stepup import benjamini_hochberg

SIZE, M, LEVEL = 499, 60, Fraction(1, 10)
KEPT = BatchFacts("kept", "a" * 64, "b" * 64, "")
pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")


def batch(seed, n_novel=8):
    """Ranks of a batch, and the facts of it."""
    rng = np.random.default_rng(seed)
    ranks = rng.integers(1, SIZE + 2, size=M)
    ranks[:n_novel] = rng.integers(1, 4, size=n_novel)
    return ranks, KEPT._replace(content=content_digest(ranks[:, None].astype(float)))


def filled(n=5, **options):
    ledger = cn.Ledger(LEVEL, **options)
    updates = []
    for seed in range(n):
        ranks, facts = batch(seed)
        ids = [f"{seed}-{i}" for i in range(M)] if seed % 2 else None
        updates.append(ledger.add(ranks, SIZE, facts, ids))
    return ledger, updates


def test_the_list_so_far_is_decided_anew_and_changes_are_named():
    ledger, updates = filled()
    ranks = np.concatenate([batch(seed)[0] for seed in range(5)])
    assert np.array_equal(
        np.concatenate(ledger.decisions()), benjamini_hochberg(ranks, SIZE, LEVEL)
    )
    listed = set()
    for update in updates:
        assert not listed & set(update.joined)
        assert set(update.left) <= listed
        listed = (listed | set(update.joined)) - set(update.left)
        assert update.n_listed == len(listed)
    assert listed == set(ledger.listed())
    assert any(row.id == f"1-{row.row}" for row in listed)
    assert "1-0 of batch 2" in map(str, ledger.listed())


def test_final_decisions_stay():
    ledger, updates = filled(final=True, n_batches=5)
    assert not any(update.left for update in updates)
    for update, mask in zip(updates, ledger.decisions(), strict=True):
        assert np.array_equal(update.rejected, mask)
    assert updates[-1].needs is None
    with pytest.raises(BatchRefusedError, match="full: its level was shared among 5 batches"):
        ledger.add(*batch(9)[:1], SIZE, batch(9)[1])


def test_what_a_batch_must_have_in_common_with_the_earlier_ones():
    ledger, _ = filled()
    with pytest.raises(BatchRefusedError, match=r"seen these rows: they are batch 3, 'batch 3'"):
        ledger.require(batch(2)[1])
    new = batch(9)[1]
    for changed, message in (
        (new._replace(schema="c" * 64), "other columns"),
        (new._replace(source="c" * 64), "another detector"),
        (new._replace(score="refitted"), "kept scores, and this batch a refitted one"),
    ):
        with pytest.raises(BatchRefusedError, match=message):
            ledger.require(changed)
    assert len(ledger.entries) == 5
    assert content_digest(np.eye(3)) == content_digest(np.eye(3)[::-1])
    assert content_digest(np.eye(3)) != content_digest(np.eye(3)[:2])


def test_what_the_next_batch_needs():
    ledger = cn.Ledger(LEVEL)
    ranks, facts = batch(0, n_novel=0)
    needs = ledger.add(np.maximum(ranks, 60), SIZE, facts).needs
    # αK(ℓ+1)/(M+n) ≥ 1 with α(ℓ+1) = 50 and 60 + 60 rows.
    assert (needs.fewest, needs.n_listed) == (3, 0)
    assert "the list holds 3 rows or more, or none; 0 are on it now" in str(needs)
    best = np.full(M, SIZE)
    best[:3] = 1
    assert ledger.add(best, SIZE, batch(7)[1]).n_listed == 3
    assert "can flag a single row" in str(ledger.needs(10))
    final = cn.Ledger(LEVEL, final=True, n_batches=2)
    assert final.needs(60, SIZE).fewest == 2  # 60/(50·2/3)


@pytest.mark.parametrize("options", [{}, {"final": True, "n_batches": 7}])
def test_a_file_gives_the_ledger_back(tmp_path, options):
    ledger, _ = filled(**options)
    ledger.save(tmp_path / "month.json")
    again = cn.Ledger.load(tmp_path / "month.json")
    assert repr(again) == repr(ledger)
    assert again.listed() == ledger.listed()
    ranks, facts = batch(9)
    one, other = (one.add(ranks, SIZE, facts).summary() for one in (ledger, again))
    assert one == other


def test_ranks_that_cannot_matter_are_not_in_the_file(tmp_path):
    ledger, _ = filled(2)
    ledger.save(tmp_path / "month.json")
    held = json.loads((tmp_path / "month.json").read_text())["batches"]
    for seed, one in enumerate(held):
        ranks = batch(seed)[0]
        assert one["rows"] == np.flatnonzero(ranks <= 50).tolist()
        assert one["n_tests"] == M


def changed_files():
    ledger, _ = filled(3)
    content = json.loads(json.dumps(plain(ledger)))
    numbers = [-1, 0, 2**70, 1.5, True, None, "x", [], {}]
    places = [
        *[(name,) for name in content],
        *[("batches", 1, name) for name in content["batches"][0]],
        *[("batches", 1, name, 0) for name in ("rows", "ranks", "ids")],
        ("facts", "score"),
        ("facts", "source"),
        ("facts", "settings"),
    ]
    return st.tuples(st.just(content), st.sampled_from(places), st.sampled_from(numbers))


def plain(ledger):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        ledger.save(f"{folder}/a.json")
        with open(f"{folder}/a.json") as file:
            return json.load(file)


@settings(max_examples=150, deadline=None)
@given(changed_files())
def test_a_changed_file_is_read_or_named(tmp_path_factory, drawn):
    content, place, value = drawn
    content = json.loads(json.dumps(content))
    inner = content
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    if place != ("checksum",):
        content["checksum"] = _checksum({k: v for k, v in content.items() if k != "checksum"})
    path = tmp_path_factory.mktemp("ledger") / "a.json"
    path.write_text(json.dumps(content))
    try:
        found = read_ledger(path)
    except SavedFileError:
        return
    found.decisions()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"{}", "'conovel' is not 'ledger'"),
        (b'{"conovel": "ledger", "format": 4}', "format is 4, and this release reads 1 to 3"),
        (b'{"conovel": "ledger", "format": 2}', "fields are missing"),
        (b'{"conovel": "ledger", "format": true}', "format is True"),
    ],
)
def test_bytes_that_are_no_ledger_are_named(tmp_path, data, message):
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(SavedFileError, match=message):
        cn.Ledger.load(tmp_path / "a.json")


def test_a_changed_number_is_found_by_the_checksum(tmp_path):
    path = tmp_path / "a.json"
    filled(2)[0].save(path)
    path.write_text(path.read_text().replace('"n_tests": 60', '"n_tests": 61', 1))
    with pytest.raises(SavedFileError, match="checksum is wrong"):
        cn.Ledger.load(path)


def test_levels_must_agree(tmp_path):
    rows = np.random.default_rng(0).normal(size=(100, 2))
    with pytest.raises(InputError, match="ledger has level 1/20 and the detector 1/10"):
        cn.AdaDetect("logistic").detect(rows, rows[:9] + 0.1, ledger=cn.Ledger(0.05))
    with pytest.raises(InputError, match=r"a conovel\.Ledger or a path, not 3"):
        cn.AdaDetect("logistic").detect(rows, rows[:9] + 0.1, ledger=3)
    with pytest.raises(InputError, match="leave repeats, pi0 and ties out"):
        cn.AdaDetect("logistic", repeats=2).detect(rows, rows[:9] + 0.1, ledger=cn.Ledger())
    with pytest.raises(InputError, match="final must be True or False"):
        cn.Ledger(final="yes")


def test_refitted_scores_by_path_and_by_object(tmp_path):
    rng = np.random.default_rng(0)
    X_null = rng.normal(size=(900, 3))
    ledger, path = cn.Ledger(), tmp_path / "month.json"
    detector = cn.AdaDetect("logistic")
    for day in range(3):
        X = rng.normal(size=(50, 3))
        X[:6] += 5
        found = [detector.detect(X_null, X, ledger=one) for one in (ledger, path)]
        assert np.array_equal(found[0].rejected, found[1].rejected)
        assert found[0].ledger.summary() == found[1].ledger.summary()
        assert "on the list over all batches" in found[0].guarantee.statement
        assert "adjusted_p_value" not in found[0].columns()
        assert found[0].summary()["ledger"]["batch"] == day + 1
    assert all(mask[:6].all() for mask in ledger.decisions())
    with pytest.raises(BatchRefusedError, match="other known normals"):
        detector.detect(X_null[:-1], X + 1, ledger=path)
    with pytest.raises(BatchRefusedError, match="seen these rows"):
        detector.detect(X_null, X[::-1], ledger=path)


def test_settings_must_not_change_because_of_earlier_lists(tmp_path):
    rng = np.random.default_rng(0)
    X_null, path = rng.normal(size=(400, 3)), tmp_path / "month.json"
    begun = {"scorer": LogisticRegression(C=2.0), "train_fraction": 0.5, "random_state": 0}

    def go_on(**changed):
        X = rng.normal(size=(20, 3))
        return cn.AdaDetect(**begun | changed).detect(X_null, X, ledger=path, check=False)

    go_on()
    for changed, name in (
        ({"random_state": 1}, "seed"),
        ({"random_state": None}, "seed"),
        ({"train_fraction": "2/5"}, "train_fraction"),
        ({"train_fraction": None}, "train_fraction"),
        ({"scorer": "boosting"}, "scorer"),
        ({"scorer": LogisticRegression(C=1.0)}, "scorer"),
        ({"scorer": None, "random_state": 5}, "scorer, seed"),
        ({"max_train_rows": 100}, "max_train_rows"),
        ({"schema": {"0": "number"}}, "schema"),
    ):
        with pytest.raises(BatchRefusedError, match=f"has another {name} than the earlier ones"):
            go_on(**changed)
    assert len(read_ledger(path).entries) == 1
    go_on(scorer=LogisticRegression(C=2.0), train_fraction="1/2", random_state=np.int64(0))
    # A file of format 1 has no settings: those of its next batch are noted.
    content = json.loads(path.read_text("utf-8"))
    del content["checksum"], content["facts"]["settings"]
    content["format"] = 1
    path.write_text(json.dumps(content | {"checksum": _checksum(content)}))
    go_on(random_state=7)
    with pytest.raises(BatchRefusedError, match="another seed"):
        go_on()
    assert len(read_ledger(path).entries) == 3


def test_a_fresh_seed_for_each_batch_is_a_setting():
    ledger, rng = cn.Ledger(), np.random.default_rng(0)
    X_null = rng.normal(size=(200, 2))
    for state in (None, np.random.default_rng(3)):  # neither looks at a list
        detector = cn.AdaDetect("logistic", random_state=state)
        detector.detect(X_null, rng.normal(size=(9, 2)), ledger=ledger, check=False)
    assert len(ledger.entries) == 2


def add_batches(path, seeds):
    for seed in seeds:
        ranks, facts = batch(seed)
        try:
            take_batch(path, LEVEL, ranks, SIZE, facts, name=f"{seed}.csv")
        except BatchRefusedError:
            continue


def start(path, seeds):
    process = multiprocessing.get_context("fork").Process(target=add_batches, args=(path, seeds))
    process.start()
    return process


def test_a_ledger_survives_being_killed(tmp_path):
    path, rng = tmp_path / "month.json", np.random.default_rng(0)
    seen = 0
    for _ in range(12):
        process = start(path, range(200))
        time.sleep(rng.uniform(0.005, 0.08))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        if path.exists():
            found = cn.Ledger.load(path)
            assert len(found.entries) >= seen
            seen = len(found.entries)
    add_batches(path, range(40))
    expected = cn.Ledger(LEVEL)
    for seed in range(max(seen, 40)):
        expected.add(*batch(seed)[:1], SIZE, batch(seed)[1], name=f"{seed}.csv")
    assert cn.Ledger.load(path).listed() == expected.listed()


def test_two_processes_share_a_ledger(tmp_path):
    path = tmp_path / "month.json"
    processes = [start(path, range(i, 30, 2)) for i in (0, 1)]
    for process in processes:
        process.join(60)
    assert sorted(e.name for e in cn.Ledger.load(path).entries) == sorted(
        f"{seed}.csv" for seed in range(30)
    )
