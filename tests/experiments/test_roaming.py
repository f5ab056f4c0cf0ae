"""The Gaussian design with roaming rows, and the limit of power for the composite null."""

import numpy as np
import pytest

from benchmarks._roaming import NOVEL, composite_limit, roaming_design
from conovel.errors import InputError
from conovel.experiments.gaussian import centres
from conovel.experiments.limit import gaussian_limit


def test_origins_say_where_rows_are_normal():
    agents = roaming_design(8.0, 0.3, 0)
    corners = centres(8.0)
    for j, agent in enumerate(agents):
        normal = agent.origin != NOVEL
        nearest = np.argmin(np.linalg.norm(agent.X_test[normal, None] - corners, axis=2), axis=1)
        assert np.array_equal(nearest, agent.origin[normal])
        assert round(0.3 * normal.sum()) == np.count_nonzero(agent.origin[normal] != j)
        assert agent.is_novel.sum() == 33


def test_roaming_rows_come_from_another_corner():
    agents = roaming_design(2.0, 0.5, 1, n_agents=7)
    for j, agent in enumerate(agents):
        away = agent.origin[(agent.origin != NOVEL) & (agent.origin != j)]
        assert away.size
        assert not np.any(away % 3 == j % 3)


@pytest.mark.parametrize("bad", [{"share": -0.1}, {"share": 1.1}, {"n_agents": 1}])
def test_what_cannot_be_drawn_is_refused(bad):
    with pytest.raises(InputError):
        roaming_design(1.0, bad.pop("share", 0.1), 0, **bad)


def test_without_a_shift_the_limit_is_that_of_one_null():
    assert composite_limit(0.0) == pytest.approx(gaussian_limit(0.0).common, abs=0.001)


def test_the_limit_falls_with_the_shift():
    found = [composite_limit(delta) for delta in (1.0, 2.0, 4.0)]
    assert found == sorted(found, reverse=True)
    assert found[1:] == pytest.approx([0.9755, 0.9375], abs=0.002)
