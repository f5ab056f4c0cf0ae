"""A site with more rows than it learns from."""

from functools import partial

import pytest
from sklearn.ensemble import ExtraTreesClassifier
from support.files import N_NULL, draw

import conovel as cn
from conovel.site.work import SiteWork


@pytest.mark.parametrize("composite", ["mean", "stacked", "auto"])
def test_an_agent_with_more_rows_than_are_learnt_from_takes_part(monkeypatch, composite):
    """Counts, roster and messages are those of any run; only what is learnt from is a sample."""
    null, test = draw()
    agents = [cn.Agent("big", null, test), cn.Agent("small", null[:200], test[:150])]
    scorer = ExtraTreesClassifier(8, max_depth=4)
    monkeypatch.setattr("conovel.runs.agents.SiteWork", partial(SiteWork, max_train_rows=250))
    run = cn.Network(agents, regime="full", scorer=scorer, composite=composite, bits=None).run()
    assert run["big"].n_calibration == N_NULL - 250
    assert run["small"].n_calibration < 200
    ranks = [(run[name].ranks, run[name].n_calibration) for name in ("big", "small")]
    outcome = cn.fast_lsu(ranks, 0.1)
    assert outcome.n_rejected == run.n_rejected > 0
    assert outcome.counts[-1] == tuple(run[name].n_rejected for name in ("big", "small"))
