"""Models, scores, ranks, counts and decisions of fixed runs are bit for bit what was recorded."""

import json

import pytest
from support.recording import RECORDED, cases, fingerprint

CASES = cases()
WANTED = json.loads(RECORDED.read_text(encoding="utf-8"))


def test_every_case_is_recorded():
    assert set(CASES) == set(WANTED["cases"])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
def test_is_as_recorded(name):
    depends_on_blas, run = CASES[name]
    if depends_on_blas and fingerprint() != WANTED["fingerprint"]:
        pytest.skip("recorded on a machine whose BLAS rounds in another way")
    assert run() == WANTED["cases"][name]
