"""Models, scores, ranks, counts and decisions of fixed runs are bit for bit what was recorded."""

import json

import pytest
from support.recording import RECORDED, cases, fingerprint

CASES = cases()
WANTED = json.loads(RECORDED.read_text(encoding="utf-8"))
# The default run takes one of each kind; the default scorer in a network takes a minute a case.
QUICK = {
    "one site, default",
    "one site, two candidates",
    "one site, refined trees",
    "one site, blend",
    "full, auto, compact",
    "full, mean, 1",
    "full, max, 4",
    "full, min, None",
    "full, stacked, 16",
    "full, linear",
    "split, 4",
}
PARAMS = [
    name if name in QUICK or "trees" in name else pytest.param(name, marks=pytest.mark.slow)
    for name in CASES
]


def test_every_case_is_recorded():
    assert set(CASES) == set(WANTED["cases"])
    assert set(CASES) >= QUICK


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
def test_is_as_recorded(name):
    depends_on_machine, run = CASES[name]
    if depends_on_machine and fingerprint() != WANTED["fingerprint"]:
        pytest.skip("recorded on a machine that rounds in another way")
    assert run() == WANTED["cases"][name]
