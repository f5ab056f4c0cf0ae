"""The choice of a composite: reported, and made from the multiset of the mixture."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from support.scorers import both_sides, composite_scores, fit_scorer

import conovel as cn
from conovel.experiments.gaussian import gaussian_design
from conovel.scorers.automatic import Automatic
from conovel.scorers.base import Mixture, Selection, TrainingSet
from conovel.scorers.blend import Refined
from conovel.site.composite import choose_composite

QUICK = Refined(LogisticRegression(), n_folds=2, n_refits=2)


def agents(seed=0, n_null=600, **design):
    drawn = gaussian_design(2.0, seed, n_null=n_null, n_test=150, **design)
    return [cn.Agent(f"site-{j}", a.X_null, a.X_test) for j, a in enumerate(drawn)]


def test_each_agent_chooses_its_composite_and_says_so(few_trees):
    run = cn.Network(agents(), scorer=QUICK).run()
    names = ("stacked", "mean", "local", "min", "max")
    for site in run.values():
        assert isinstance(site.choices["composite"], Selection)
        assert site.choices["composite"].names == names
    said = json.loads(json.dumps(run.to_dict()))["decisions"]
    assert all(
        set(one["choices"]["composite"]["candidates"]) == set(names) for one in said.values()
    )
    automatic = cn.Network(agents(), regime="counts").run()
    assert all(set(site.choices) == {"scorer"} for site in automatic.values())


def test_an_agent_with_few_training_rows_stacks_without_a_choice(few_trees):
    runs = [
        cn.Network(agents(n_null=300), scorer=QUICK, composite=composite).run()
        for composite in ("auto", "stacked")
    ]
    for site in runs[0]:
        assert "composite" not in runs[0][site].choices
        assert runs[0][site].scores.tobytes() == runs[1][site].scores.tobytes()


def test_a_composite_is_what_its_choice_names():
    train, rows = both_sides(3)
    mixture = Mixture.of(np.concatenate([train[300:], rows]))
    local = fit_scorer(QUICK, train[:300], mixture)
    peer = fit_scorer(LogisticRegression(), train[300:], Mixture.of(rows))
    task = local, [peer], train[:300], mixture
    winner = choose_composite(local, [peer], TrainingSet(train[:300], mixture)).winner
    auto, named = (composite_scores(name, *task) for name in ("auto", winner))
    assert auto.tobytes() == named.tobytes()


@pytest.mark.parametrize("composite", ["auto", "stacked"])
def test_permuting_the_mixture_permutes_composite_scores_bit_for_bit(composite, few_trees):
    train, rows = both_sides(4, n_null=150, n_test=90, n_novel=20)
    rows = np.concatenate([rows, rows[:7]])  # equal rows too
    order = np.random.default_rng(0).permutation(len(rows))
    peer = fit_scorer(LogisticRegression(), train, Mixture.of(rows[::2]))
    scores = []
    for some in (rows, rows[order]):
        mixture = Mixture.of(some)
        local = fit_scorer(Automatic(n_folds=2, random_state=1), train, mixture)
        scores.append(composite_scores(composite, local, [peer], train, mixture))
    assert scores[0][order].tobytes() == scores[1].tobytes()
