"""Certificates of results: one site, agents, networks, files; and lists that they choose."""

import json
import pickle
from fractions import Fraction

import numpy as np
import pytest

import conovel as cn
from conovel.errors import ResolutionWarning
from conovel.experiments.gaussian import gaussian_design
from conovel.protocol.certificates import flagged_places, run_bounds, run_numbers
from conovel.protocol.replay import verify
from conovel.runs.certificates import Certificate, certificate_of_site
from conovel.runs.file_detection import detect_files
from conovel.stats.cells import N_CELLS


def samples(n_null=600, n_test=300, n_novel=40, shift=3.0, seed=0):
    rng = np.random.default_rng(seed)
    null, test = rng.normal(size=(n_null, 3)), rng.normal(size=(n_test, 3))
    test[:n_novel] += shift
    return null, test, np.arange(n_test) < n_novel


def draw(n_agents=3, seed=0, n_null=900, n_test=300):
    rows = gaussian_design(2.0, seed, n_agents=n_agents, n_null=n_null, n_test=n_test)
    names = [f"agent-{j}" for j in range(n_agents)]
    agents = [cn.Agent(name, a.X_null, a.X_test) for name, a in zip(names, rows, strict=True)]
    return agents, {name: a.is_novel for name, a in zip(names, rows, strict=True)}


@pytest.fixture(scope="module")
def network():
    agents, novel = draw()
    return cn.Network(agents, regime="joint", scorer="logistic").run(check=False), novel


# One site -----------------------------------------------------------------------------------


def test_a_certificate_of_one_site_holds_for_its_rows():
    null, test, novel = samples()
    result = cn.AdaDetect(scorer="logistic").detect(null, test, check=False)
    certificate = result.certificate(confidence=0.95)
    assert isinstance(certificate, Certificate)
    assert (result.rejected & ~novel).sum() <= certificate.max_false < result.n_rejected
    assert 0 < certificate.min_novelties <= novel.sum()
    assert certificate.max_false_of(result.rejected) == certificate.max_false
    assert certificate.max_false_of(np.zeros(300, dtype=bool)) == 0
    assert certificate.max_false_of(np.ones(300, dtype=bool)) >= (~novel).sum()
    flagged = certificate.list(max_share=0.3)
    assert flagged.any()
    assert 10 * certificate.max_false_of(flagged) <= 3 * flagged.sum()
    assert not (flagged & (result.ranks > result.ranks[flagged].max())).any()
    assert "probability at most" in str(certificate)
    assert str(certificate) in repr(certificate)
    assert pickle.loads(pickle.dumps(certificate)).max_false == certificate.max_false


def test_a_set_that_adds_low_rows_is_counted_row_by_row():
    null, test, _ = samples()
    result = cn.AdaDetect(scorer="logistic").detect(null, test, check=False)
    certificate = result.certificate()
    lowest = np.argsort(result.ranks)[-5:]
    more = result.rejected.copy()
    more[lowest] = True
    assert certificate.max_false_of(more) == certificate.max_false + 5


@pytest.mark.parametrize(
    "mask", [np.ones(299, dtype=bool), np.ones(300), {"": np.ones(3, dtype=bool)}, {"a": [True]}]
)
def test_masks_of_other_rows_are_refused(mask):
    null, test, _ = samples()
    result = cn.AdaDetect(scorer="logistic").detect(null, test, check=False)
    with pytest.raises(cn.InputError, match="mask must have"):
        result.certificate().max_false_of(mask)


def test_nothing_flagged_is_an_answer():
    null, test, _ = samples(n_null=120, n_novel=80, shift=3.0)
    with pytest.warns(ResolutionWarning):
        result = cn.AdaDetect(scorer="logistic", level=0.01).detect(null, test, check=False)
    assert result.n_rejected == 0
    words = "No single row can be flagged at 1 %. But at least"
    for text in (result.headline, repr(result), str(result.certificate())):
        assert words in text
    assert "would help" in result.headline
    proof = result.summary()["certificate"]
    assert proof["min_novelties"] > 0 == proof["n_flagged"]
    assert f"{proof['min_novelties']} of the 300 rows are novel (95 %)" in result.headline


def test_normals_only_prove_nothing():
    null, test, _ = samples(n_novel=0)
    result = cn.AdaDetect(scorer="logistic").detect(null, test, check=False)
    assert result.n_rejected == 0
    assert "certificate" not in result.summary()
    assert "no row stands out enough at this level" in result.headline
    assert "no novelties are proven" in str(result.certificate())


def test_a_promise_about_this_list_flags_the_longest_such_list():
    null, test, novel = samples()
    mean = cn.AdaDetect(scorer="logistic", level=0.3).detect(null, test, check=False)
    sure = cn.AdaDetect(scorer="logistic", level=0.3, confidence=0.9).detect(
        null, test, check=False
    )
    assert np.array_equal(sure.rejected, mean.certificate(0.9).list(0.3))
    assert 0 < sure.n_rejected != mean.n_rejected
    assert sure.confidence == Fraction(9, 10)
    assert "With a probability of at least 0.9, at most 0.3" in sure.guarantee.statement
    assert "with 90 % probability at most 30 % of them" in sure.headline
    assert sure.summary()["confidence"] == "9/10"
    assert (sure.rejected & ~novel).sum() <= 0.3 * sure.n_rejected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"repeats": 2}, "leave repeats"),
        ({"pi0": "storey"}, "leave repeats"),
        ({"confidence": 1}, "confidence"),
    ],
)
def test_promises_about_a_list_that_are_not_proven_are_refused(settings, words):
    null, test, _ = samples()
    with pytest.raises(cn.InputError, match=words):
        cn.AdaDetect(**({"confidence": 0.9} | settings)).detect(null, test)


def test_kept_detectors_and_ledgers_have_no_promise_about_a_list(tmp_path):
    null, test, _ = samples()
    detector = cn.AdaDetect(scorer="logistic", confidence=0.9)
    with pytest.raises(cn.InputError, match="kept detector"):
        detector.keep(null, test)
    with pytest.raises(cn.InputError, match="leave repeats, pi0 and ledger out"):
        detector.detect(null, test, ledger=tmp_path / "month.json")


def test_repeats_and_ledgers_have_no_certificate(tmp_path):
    null, test, _ = samples()
    repeated = cn.AdaDetect(scorer="logistic", repeats=2).detect(null, test, check=False)
    listed = cn.AdaDetect(scorer="logistic").detect(
        null, test, ledger=tmp_path / "month.json", check=False
    )
    for result in (repeated, listed):
        with pytest.raises(cn.InputError, match="'joint' and 'together' have one"):
            result.certificate()


# Files --------------------------------------------------------------------------------------


def test_a_certificate_from_files_is_that_of_the_rows(tmp_path):
    null, test, _ = samples()
    for name, rows in (("null", null), ("test", test)):
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="a,b,c", comments="")
    for confidence in (None, 0.9):
        detector = cn.AdaDetect(scorer="logistic", level=0.3, confidence=confidence)
        paths = tmp_path / "null.csv", tmp_path / "test.csv", tmp_path / "out.csv"
        result = detect_files(detector, *paths, check=False)
        certificate = result.certificate(0.9)
        assert certificate.n_flagged == result.n_rejected > 0
        flagged = certificate.list(0.3)
        assert certificate.max_false_of(flagged) <= 0.3 * flagged.sum()
        if confidence is not None:
            assert flagged.sum() == result.n_rejected
            assert "With a probability of at least 0.9" in result.guarantee.statement


# Networks -----------------------------------------------------------------------------------


def test_a_certificate_of_a_network_holds_for_all_its_rows(network):
    run, novel = network
    certificate = run.certificate(confidence=0.95)
    false = sum((run[name].rejected & ~novel[name]).sum() for name in run)
    assert false <= certificate.max_false < run.n_rejected == certificate.n_flagged
    assert 0 < certificate.min_novelties <= sum(own.sum() for own in novel.values())
    flagged = certificate.list(0.5)
    assert set(flagged) == set(run)
    n = sum(own.sum() for own in flagged.values())
    assert n > 0
    assert certificate.max_false_of(flagged) <= 0.5 * n
    whole = np.concatenate(list(flagged.values()))
    assert certificate.max_false_of(whole) == certificate.max_false_of(flagged)


def test_an_agent_has_a_certificate_of_its_own_rows(network):
    run, novel = network
    for name, site in run.items():
        certificate = site.certificate(0.95)
        assert (site.rejected & ~novel[name]).sum() <= certificate.max_false
        assert certificate.n_test == site.rejected.size


def test_messages_are_enough_for_the_certificate(network):
    run, _ = network
    assert run_numbers(run.transcript, 0.95) == run.certificate(0.95).to_dict()


def test_masks_leave_the_certificate_as_it_is():
    pytest.importorskip("cryptography")
    agents, _ = draw(n_null=600, n_test=150)
    plain, hidden = (
        cn.Network(agents, regime="together", masks=masks).run(check=False)
        for masks in (False, True)
    )
    assert plain.certificate().to_dict() == hidden.certificate().to_dict()
    assert run_numbers(hidden.transcript, 0.95) == hidden.certificate(0.95).to_dict()


def test_with_liars_the_rows_of_the_agents_with_most_tests_do_not_count():
    agents, _ = draw(4, n_null=1200, n_test=400)
    run = cn.Network(agents, regime="joint", scorer="logistic", liars=1).run(check=False)
    bounds = run_bounds(run.transcript, 0.9)
    by_agent = [np.cumsum(h.tests[::-1]) for h in run.transcript.cell_counts.values()]
    relied_on = np.sum(by_agent, axis=0) - np.max(by_agent, axis=0)
    assert np.array_equal(bounds.relied_on, relied_on[: bounds.tests.size])
    certificate = run.certificate(0.9)
    assert certificate.min_novelties <= (bounds.tests - bounds.at_most).max()
    assert "of honest agents" in str(certificate)


def test_thresholds_below_the_counts_of_an_agent_by_itself_are_not_used():
    rng = np.random.default_rng(0)
    agents = [
        cn.Agent(name, rng.normal(size=(n, 3)), np.vstack([rng.normal(size=(m, 3)), extra]))
        for (name, n, m), extra in zip(
            [("a", 400, 60), ("b", 400, 60), ("c", 100, 300)],
            rng.normal(4, 1, size=(3, 20, 3)),
            strict=True,
        )
    ]
    run = cn.Network(agents, regime="joint", scorer="logistic").run(check=False)
    alone = [name for name, room in run.transcript.rooms.items() if not room]
    assert alone
    bounds = run_bounds(run.transcript, 0.95)
    lowest = max(
        int(np.argmax(np.add(counts.tests, counts.calibration) > 0))
        for name, counts in run.transcript.cell_counts.items()
        if name in alone
    )
    assert bounds.tests.size == N_CELLS - lowest
    assert flagged_places(run.transcript, run.transcript.outcome).size == run.n_rejected
    assert run.certificate().max_false <= run.n_rejected


@pytest.mark.parametrize("regime", ["counts", "full", "isolated", "split", "pooled"])
def test_regimes_without_one_scale_have_certificates_of_agents_at_most(regime):
    agents, _ = draw(2, n_null=400, n_test=100)
    run = cn.Network(agents, regime=regime, scorer="logistic").run(check=False)
    with pytest.raises(cn.InputError, match="Use 'joint' or 'together'"):
        run.certificate()
    with pytest.raises(cn.InputError, match="Use 'joint' or 'together'"):
        cn.Network(agents, regime=regime, scorer="logistic", confidence=0.9).run()
    site = run["agent-0"]
    if regime in ("split", "pooled"):
        with pytest.raises(cn.InputError, match="no certificate for this result"):
            site.certificate()
    else:
        assert certificate_of_site(site).n_test == site.rejected.size


def test_a_network_flags_the_longest_list_with_its_confidence(network):
    mean, _ = network
    agents, _ = draw()
    run = cn.Network(agents, regime="joint", scorer="logistic", level=0.4, confidence=0.9).run()
    certificate = run.mean.certificate(0.9)
    for name, flagged in certificate.list(0.4).items():
        assert np.array_equal(run[name].rejected, flagged)
    assert run.confidence == Fraction(9, 10)
    assert "With a probability of at least 0.9, at most 0.4" in str(run.guarantee)
    assert "with 90 % probability" in run.headline
    assert run.transcript.outcome is not None
    assert mean.confidence is None


# Verification -------------------------------------------------------------------------------


def test_verify_recomputes_the_certificate_of_a_network(network):
    run, _ = network
    content = run.to_dict() | {"certificate": run.certificate(0.9).to_dict()}
    assert verify(content) == []
    for name in ("max_false", "min_novelties", "n_flagged"):
        wrong = json.loads(json.dumps(content))
        wrong["certificate"][name] += 1
        assert any("certificate" in finding for finding in verify(wrong))


def test_verify_recomputes_a_list_with_its_confidence():
    agents, _ = draw()
    run = cn.Network(agents, regime="joint", scorer="logistic", level=0.4, confidence=0.9).run()
    content = json.loads(json.dumps(run.to_dict()))
    assert verify(content) == []
    content["certified"]["cell"] += 1
    assert any("certified list begins" in finding for finding in verify(content))
    content["certified"]["cell"] -= 1
    content["certified"]["flagged"]["agent-0"].append(0)
    assert any("certified list of agent-0" in finding for finding in verify(content))


def test_verify_recomputes_the_certificate_of_one_site():
    null, test, _ = samples()
    result = cn.AdaDetect(scorer="logistic", level=0.3, confidence=0.9).detect(null, test)
    rows = {"ranks": result.ranks, "p_values": result.p_values, "rejected": result.rejected}
    content = {"command": "detect"} | result.summary()
    content |= {"certificate": result.certificate(0.9).to_dict()}
    content |= {name: own.tolist() for name, own in rows.items()}
    assert verify(content) == []
    for wrong in (
        content | {"certificate": content["certificate"] | {"max_false": 0}},
        content | {"confidence": "99/100"},
    ):
        assert verify(wrong)


# The list of a ledger -----------------------------------------------------------------------


def test_the_list_of_a_kept_detector_has_the_certificate_of_all_its_rows():
    null, _, _ = samples(n_null=2000)
    detector = cn.AdaDetect("isolation-forest", level=0.2).keep(null)
    ledger, rows, novel = cn.Ledger(level=0.2), [], []
    for day in range(3):
        _, test, own = samples(n_test=200, n_novel=20, shift=4.0, seed=day + 1)
        result = detector.detect(test, ledger=ledger)
        assert detector.detect(test).certificate().n_test == 200
        rows.append(test)
        novel.append(own)
    certificate = ledger.certificate(0.9)
    whole = detector.detect(np.vstack(rows)).certificate(0.9)
    assert certificate.n_flagged == ledger.n_listed == whole.n_flagged > 0
    assert certificate.max_false == whole.max_false
    assert certificate.min_novelties <= whole.min_novelties
    listed = certificate.list(0.3)
    assert list(listed) == ["batch 1", "batch 2", "batch 3"]
    assert certificate.max_false_of(listed) <= 0.3 * sum(own.sum() for own in listed.values())
    with pytest.raises(cn.InputError, match="ask the ledger"):
        result.certificate()


@pytest.mark.parametrize("settings", [{}, {"final": True}])
def test_other_ledgers_have_no_certificate(settings):
    null, test, _ = samples()
    ledger = cn.Ledger(**settings)
    with pytest.raises(cn.InputError, match="one kept detector"):
        ledger.certificate()
    if not settings:
        cn.AdaDetect(scorer="logistic").detect(null, test, ledger=ledger, check=False)
    else:
        cn.AdaDetect("isolation-forest").keep(null).detect(test, ledger=ledger)
    with pytest.raises(cn.InputError, match="one kept detector"):
        ledger.certificate()


# With fitted scores -------------------------------------------------------------------------


def fails(certificate, novel):
    """Tell whether some list has more false rows than the certificate says."""
    places = certificate.rows()[0]
    false = np.concatenate([places[name][~own] for name, own in novel.items()])
    n = certificate.bounds.tests.size
    counts = np.cumsum(np.bincount(np.minimum(false, n), minlength=n + 1))[:n]
    return bool((counts > certificate.bounds.at_most).any())


def small_site(seed):
    null, test, novel = samples(n_null=160, n_test=60, n_novel=5, seed=seed)
    detector = cn.AdaDetect(scorer="logistic", train_fraction=0.4, random_state=seed)
    return detector.detect(null, test, check=False), {"": novel}


def small_network(seed):
    agents, novel = draw(n_null=240, n_test=90, seed=seed)
    network = cn.Network(agents, regime="joint", scorer="logistic", random_state=seed)
    return network.run(check=False), novel


@pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")
@pytest.mark.parametrize(("make", "runs"), [(small_site, 200), (small_network, 60)])
def test_certificates_hold_for_scores_that_learn_from_the_tests(make, runs):
    """At δ = 1/4: fails in at most a quarter of the runs, and in some."""
    made = [make(seed) for seed in range(runs)]
    share = np.mean([fails(result.certificate(0.75), novel) for result, novel in made])
    assert 0 < share <= 0.25 + 3 * np.sqrt(0.25 * 0.75 / runs)
