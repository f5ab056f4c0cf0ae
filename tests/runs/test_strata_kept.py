"""Strata in kept detectors and in ledgers: saved, tested, listed, and what is refused."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from support.strata_rows import BRANCHES, frame

import conovel as cn
from conovel.deciding.strata import decide_strata
from conovel.errors import BatchRefusedError, ColumnError, InputError, SampleError, SavedFileError
from conovel.protocol.replay import verify
from conovel.runs.kept_file import pack, unpack
from conovel.runs.ledger_file import ledger_as_plain, ledger_of_plain

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
CHANGED = [0.2, 0.3, 0.5]


@pytest.fixture(scope="module")
def null():
    return frame(0, 2400, [0.6, 0.25, 0.15])


@pytest.fixture(scope="module")
def kept(null):
    detector = cn.AdaDetect("logistic", strata="branch")
    return detector.keep(null, frame(5, 400, CHANGED, far=5))


def batch(seed, n=320, new=0):
    test = frame(seed, n, CHANGED, far=5)
    test.loc[n - new :, "branch"] = "new"
    return test


def test_the_file_gives_the_same_detector(kept, tmp_path):
    kept.save(tmp_path / "kept.conovel")
    again = cn.KeptDetector.load(tmp_path / "kept.conovel")
    assert again.digest == kept.digest
    assert "within strata of branch" in repr(again)
    one, other = (detector.detect(batch(1)) for detector in (kept, again))
    assert one.to_frame().equals(other.to_frame())
    assert one.n_rejected > 20


def test_strata_that_a_batch_cannot_compare_are_named(kept):
    result = kept.detect(batch(1, new=20), ids=np.arange(320))
    assert result.tested.tolist() == [True] * 300 + [False] * 20
    assert not result.rejected[300:].any()
    [finding] = [one for one in result.warnings if one.kind == "untested_strata"]
    assert "20 rows are not tested" in finding.message
    assert result.to_frame()["stratum"].tolist()[300:] == ["(none)"] * 20
    assert result.by_stratum()["n_rejected"].sum() == result.n_rejected
    assert result.certificate(0.9).min_novelties > 0
    content = json.loads(json.dumps(result.summary())) | {"command": "detect", "detector": "k"}
    rows = {"ranks": result.ranks.tolist(), "rejected": result.rejected.tolist()}
    assert verify(content | rows) == []
    assert verify(content | rows | {"rejected": [True] * 320})
    with pytest.raises(SampleError, match="no stratum of 'branch'"):
        kept.detect(batch(2, 40, new=40))


def test_numbers_name_strata_that_are_new():
    null, other, test = (frame(seed, 600, CHANGED) for seed in (0, 1, 2))
    for one in (null, other, test):
        one["branch"] = np.searchsorted(np.sort(BRANCHES), one["branch"])
    test.loc[590:, "branch"] = 7
    detector = cn.AdaDetect("logistic", strata="branch").keep(null, other)
    [finding] = [w for w in detector.detect(test).warnings if w.kind == "untested_strata"]
    assert "no known normals ('7')" in finding.message


def test_a_level_of_its_own_and_margins(kept):
    test = batch(3, new=20)
    strict = kept.detect(test, level=0.05)
    assert 0 < strict.n_rejected <= kept.detect(test).n_rejected
    margins = kept.margins(test)
    assert np.isinf(margins[300:]).all()
    assert 0 < (margins[40:300] < 0).mean() < 0.2
    assert (margins[:40] < 0).mean() > 0.9


def test_scikit_learn_uses_the_detector_with_strata(null):
    detector = cn.AdaDetect(strata="branch").fit(null)
    assert detector.kept_.strata.columns == ("branch",)
    assert detector.decision_function(batch(1)).shape == (320,)


def test_few_known_normals_and_columns_that_are_none(null):
    with pytest.raises(ColumnError, match="no column 'town'"):
        cn.AdaDetect("logistic", strata="town").keep(null, null[:300])
    with pytest.raises(ColumnError, match="more than 100"):
        cn.AdaDetect("logistic", strata="a").keep(null, null[:300])


@pytest.mark.parametrize("final", [False, True])
def test_a_ledger_of_a_kept_detector(kept, tmp_path, final):
    book = cn.Ledger(0.1, final, n_batches=4)
    for t in range(4):
        result = kept.detect(batch(10 + t, new=20), ledger=book, ids=np.arange(320))
        assert result.ledger.needs is None
    masks = book.decisions()
    assert sum(int(mask[:40].sum()) for mask in masks) > (30 if final else 120)
    assert sum(int(mask[40:].sum()) for mask in masks) < 20
    assert not any(mask[300:].any() for mask in masks)
    assert "within each stratum" in str(result.guarantee)
    content = json.loads(json.dumps(result.summary())) | {"command": "detect", "detector": "k"}
    assert verify(content) == []
    book.save(tmp_path / "list.json")
    again = cn.Ledger.load(tmp_path / "list.json")
    assert [m.tolist() for m in again.decisions()] == [m.tolist() for m in masks]
    assert json.loads((tmp_path / "list.json").read_text())["format"] == 3
    assert result.ledger.is_full == final
    if not final:
        with pytest.raises(InputError, match="no certificate for this list"):
            book.certificate()


def test_a_ledger_of_refitted_scores_and_what_it_refuses(null, kept, tmp_path):
    path, detector = tmp_path / "list.json", cn.AdaDetect("logistic", strata="branch")
    for t in range(2):
        result = detector.detect(null, batch(10 + t), ledger=path)
    assert result.ledger.n_listed > 60
    assert cn.Ledger.load(path).guarantee == result.guarantee
    for other in (cn.AdaDetect("logistic"), cn.AdaDetect("logistic", strata=["branch", "shift"])):
        samples = (one.assign(shift=1) for one in (null, batch(20)))
        with pytest.raises(BatchRefusedError, match=r"another strata|other columns"):
            other.detect(*(samples if other.strata != None else (null, batch(20))), ledger=path)  # noqa: E711
    with pytest.raises(BatchRefusedError, match="refitted scores"):
        kept.detect(batch(20), ledger=path)


def test_rows_that_trained_do_not_calibrate_and_no_more_calibrate_than_are_needed(kept):
    result = kept.detect(batch(1))
    assert np.isin(result.calibration_scores, kept.calibration_scores).all()
    trained = kept.strata.scores[: kept.n_train]
    assert not np.isin(result.calibration_scores, trained).any()
    assert result.by_stratum()["n_calibration"].sum() == result.n_calibration
    assert result.n_calibration < kept.n_calibration


def test_known_normals_of_rare_levels_are_in_no_stratum(null):
    few = null.assign(branch=null["branch"].where(null.index % 400 != 3, "islands"))
    levels = {"kind": "category", "levels": sorted(BRANCHES), "rare": ["islands"]}
    detector = cn.AdaDetect("logistic", strata="branch", schema={"branch": levels})
    detector = detector.keep(few, frame(5, 400, CHANGED, far=5))
    again = cn.KeptDetector.from_bytes(detector.to_bytes())
    assert len(again.strata.keys) == 3
    assert set(again.detect(batch(1)).strata.labels) == set(BRANCHES)


def test_each_group_of_strata_has_an_e_value_of_its_own():
    shares = [0.7, 0.29, 0.01]
    detector = cn.AdaDetect("logistic", strata="branch")
    kept = detector.keep(frame(0, 9000, shares), frame(5, 400, CHANGED, far=5))
    given = kept.detect(frame(1, 800, CHANGED, far=5)).parts["decided"]
    assert len(set(given.decided.groups)) == 2
    share = Fraction(9, 10), Fraction(1)
    places, values = given(*share)
    outcome = decide_strata(given.decided.counts, given.decided.groups, *share)
    own = np.array([values.index(e) + 1 for e in outcome.evidence])[given.codes]
    listed = places < len(values)
    assert listed.sum() == outcome.n_rejected > 20
    assert (places[listed] == own[listed]).all()
    assert len(values) == 3


def test_rows_that_are_not_tested_count_in_evidence(kept):
    level, most = Fraction(1, 20), Fraction(1, 20)
    given = kept.detect(batch(1, new=20)).parts["decided"]
    outcome = decide_strata(given.decided.counts, given.decided.groups, level, most)
    places, values = given(level, most)
    assert set(values) == {0, *(e * Fraction(320, 300) for e in outcome.evidence)}
    assert (places[300:] == len(values)).all()
    assert (places < len(values)).sum() == outcome.n_rejected > 20


def changed(book, change):
    """Change a ledger as JSON, and put its checksum right."""
    from conovel.runs.ledger_file import _checksum

    plain = json.loads(json.dumps(ledger_as_plain(book)))
    change(plain)
    plain.pop("checksum")
    return {**plain, "checksum": _checksum(plain)}


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (None, "evidence"),
        ([], "evidence"),
        (["3", "3", "0"], "evidence"),
        (["3"], "evidence"),
        (["1/0"], "evidence"),
        (["-1", "0"], "evidence"),
        (["9" * 300, "0"], "evidence"),
        (["0"], "rank of batch 1 is too large"),
    ],
)
def test_evidence_that_is_none_is_named(kept, tmp_path, evidence, message):
    book = cn.Ledger()
    kept.detect(batch(1), ledger=book)

    def change(plain):
        plain["batches"][0]["evidence"] = evidence

    with pytest.raises(SavedFileError, match=message):
        ledger_of_plain(changed(book, change), tmp_path / "list.json")
    for number in (1, 2):
        plain = changed(book, lambda plain, n=number: plain.update(format=n))
        with pytest.raises(SavedFileError, match=r"format 3|facts"):
            ledger_of_plain(plain, tmp_path / "list.json")


def broken(kept, change):
    """The bytes of a detector whose strata were changed."""
    content = unpack(kept.to_bytes())
    settings, arrays = dict(content.settings), [array.copy() for array in content.strata]
    settings, arrays = change(settings, *arrays)
    sound = content.calibration_scores, content.normals, content.novelties
    return pack(settings, content.model, *sound, tuple(arrays))


@pytest.mark.parametrize(
    "change",
    [
        lambda s, k, x, c: (s | {"strata": ["town"]}, (k, x, c)),
        lambda s, k, x, c: (s | {"strata": ["branch", "branch"]}, (k, x, c)),
        lambda s, k, x, c: (s | {"strata": []}, (k, x, c)),
        lambda s, k, x, c: (s | {"strata": None}, (k, x, c)),
        lambda s, k, x, c: (s | {"confidence": "9/10"}, (k, x, c)),
        lambda s, k, x, c: (s | {"n_train": 0}, (k, x, c)),
        lambda s, k, x, c: (s | {"n_train": x.size}, (k, x, c)),
        lambda s, k, x, c: (s, (k[:, :1], x, c)),
        lambda s, k, x, c: (s, (k[:2], x, c)),
        lambda s, k, x, c: (s, (k[[0, 0, 1]], x, c)),
        lambda s, k, x, c: (s, (np.repeat(k, 50, axis=0), x, c)),
        lambda s, k, x, c: (s, (k, x + 1, c)),
        lambda s, k, x, c: (s, (k, x[:-1], c)),
        lambda s, k, x, c: (s, (k, x[np.newaxis], c[np.newaxis])),
        lambda s, k, x, c: (s, (k, x, c - 1)),
        lambda s, k, x, c: (s, (k, x, c.astype(float))),
        lambda s, k, x, c: (s, (k, x)),
    ],
)
def test_bytes_whose_strata_are_none_are_named(kept, change):
    with pytest.raises(SavedFileError):
        cn.KeptDetector.from_bytes(broken(kept, change))


def test_a_file_without_strata_keeps_its_version(kept):
    plain = replace(kept, strata=None)
    assert plain.to_bytes()[8] == 1
    assert kept.to_bytes()[8] == 3
    assert cn.KeptDetector.from_bytes(plain.to_bytes()).strata is None


def test_a_network_keeps_a_list_with_strata(null, tmp_path):
    null = null.drop(columns="branch").assign(s=(null["branch"] == "east").astype(float))
    listed = []
    for t in range(2):
        test = batch(10 + t)
        test = test.drop(columns="branch").assign(s=(test["branch"] == "east").astype(float))
        test.loc[310:, "s"] = 5.0
        agents = [cn.Agent(n, null.iloc[j::2], test.iloc[j::2]) for j, n in enumerate("ab")]
        run = cn.Network(agents, scorer="logistic", strata="s", ledger=tmp_path).run()
        listed.append(sum(site.ledger.n_listed for site in run.values()))
        assert not any(site.rejected[155:].any() for site in run.values())
    assert listed[1] > listed[0] > 20
    book = cn.Ledger.load(tmp_path / "a.json")
    assert [numbers[0] for numbers in book.history] == [310, 310]
    others = [cn.Agent(a.name, a.X_null, a.X_test + 0.001) for a in agents]
    with pytest.raises(BatchRefusedError, match="other settings"):
        cn.Network(others, scorer="logistic", ledger=tmp_path).run()
    assert verify(json.loads(json.dumps(run.to_dict()))) == []
