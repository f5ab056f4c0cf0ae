"""Certificates on pages: what is proven where nothing is flagged, and lists with a confidence."""

import copy

import numpy as np
import pytest
from support.reports import Page

import conovel as cn
from conovel.errors import RunFileError
from conovel.report import network_content, of_detection, render


def content_of(result):
    return {"command": "detect", **result.summary(), "picture": of_detection(result)}


def words_of(content):
    return " ".join("".join(Page(render(content)).words).split())


def detected(n_null, **settings):
    rng = np.random.default_rng(0)
    X_test = np.vstack([rng.normal(size=(220, 3)), rng.normal(3, 1, size=(80, 3))])
    detector = cn.AdaDetect("logistic", **settings)
    return detector.detect(rng.normal(size=(n_null, 3)), X_test, check=False)


@pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")
def test_a_page_without_flags_says_what_is_proven():
    content = content_of(detected(120, level=0.01))
    words = words_of(content)
    assert "No single row can be flagged at 1 %. But at least" in words
    assert "would help" in words


def test_a_certificate_stands_beside_the_flags(detection):
    result = detected(900)
    content = content_of(result) | {"certificate": result.certificate(0.9).to_dict()}
    assert "With 90 % probability at most" in words_of(content)
    assert "probability" not in words_of(detection)


def test_a_list_with_a_confidence_has_no_promise_on_average():
    words = words_of(content_of(detected(900, level=0.3, confidence=0.9)))
    assert "With 90 % probability at most 30 % of the flagged rows are false." in words
    assert "not on this very run" not in words
    assert "On average at most" not in words


def test_the_certified_list_of_a_network_is_named(rows):
    agents = [cn.Agent(name, site.X_null, site.X_test) for name, site in rows.items()]
    run = cn.Network(agents, regime="joint", scorer="logistic", level=0.5, confidence=0.8).run()
    assert f"A list of {run.n_rejected} rows has at most 50 % false" in words_of(
        network_content(run)
    )


@pytest.mark.parametrize(
    ("part", "wrong"),
    [("confidence", "sure"), ("max_false", -1), ("most_novel", []), ("n_test", "many")],
)
def test_wrong_certificates_are_refused(part, wrong):
    result = detected(900)
    content = content_of(result) | {"certificate": result.certificate(0.9).to_dict()}
    broken = copy.deepcopy(content)
    broken["certificate"][part] = wrong
    with pytest.raises(RunFileError, match=part):
        render(broken)
