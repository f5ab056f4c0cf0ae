"""A peer whose model asks about one person, between real processes: the counts do not answer."""

import numpy as np
import pytest
from support.federation import SITES
from support.spikes import spike_model

from conovel.models.wire import schema_digest
from conovel.spec.training import LEAST_ROWS

VICTIM, HOSTILE = "north", "south"
TERMS = {"regime": "joint", "level": "0.1", "train_fraction": "1/2", "seed": 0}


@pytest.fixture
def agree(loopback):
    """Let the sites agree to the composite of the attack, or to no walls at all."""
    texts = {name: loopback.settings(name).read_text() for name in SITES}

    def write(more):
        for name, text in texts.items():
            loopback.settings(name).write_text(text.replace("[consent]\n", f"[consent]\n{more}\n"))

    yield write
    for name, text in texts.items():
        loopback.settings(name).write_text(text)


def cells_of(account):
    """The rows of the victim in each cell, as the coordinator sees them."""
    reveal = account["transcript"]["reveals"][VICTIM]
    return np.add(reveal["calibration"], reveal["tests"])


@pytest.mark.slow
def test_a_model_that_asks_about_a_person_gets_no_answer(rows, submit, sabotage, agree):
    columns = tuple(rows[VICTIM][1])
    present = np.array([values[0] for values in rows[VICTIM][1].values()])
    absent = np.random.default_rng(0).normal(size=present.size)
    schema = schema_digest(columns, 4)

    def ask(person, **more):
        model = spike_model(person, schema, top=[1.0] * 8)
        reached = sabotage(site=HOSTILE, when="ROSTER", do="ask", model=model.hex())
        account = submit(**TERMS, counting="committed", **more)
        was_asked = reached.exists()
        sabotage()
        return account, was_asked

    refused, was_asked = ask(present, composite="max")
    assert "composite 'max' is not among those this site agrees to" in refused["message"]
    assert not was_asked
    for composite in ("auto", "max"):
        agree("" if composite == "auto" else 'composites = ["max"]')
        for person in (present, absent):
            account, was_asked = ask(person, composite=composite)
            assert was_asked
            assert account["state"] == "done", account["message"]
            cells = cells_of(account)
            assert cells[cells > 0].min() >= LEAST_ROWS
    # Without the walls the person is by itself in a high cell, and somebody absent is not.
    agree('composites = ["max"]\nmin_group_rows = 1')
    alone = []
    for person in (present, absent):
        cells = cells_of(ask(person, composite="max")[0])
        alone.append(bool(cells[np.flatnonzero(cells)[-1]] == 1))
    assert alone[0]


@pytest.mark.slow
def test_two_runs_are_not_counted_alike(submit):
    """The same terms twice: a peer cannot see what one more spike in its model would change."""
    first, second = (cells_of(submit(**TERMS, counting="committed")) for _ in range(2))
    assert np.abs(first - second).sum() > 2
