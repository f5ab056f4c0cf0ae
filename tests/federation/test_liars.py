"""A site that lies about its counts, between real processes: the others are not misled."""

import pytest
from support.federation import SCORER, SITES, in_one_process

from conovel.experiments.gaussian import gaussian_design
from conovel.federation.loopback import OPERATOR, Loopback
from conovel.protocol.replay import verify
from conovel.rows.storage import read_json
from conovel.stats.stepup import fast_lsu

LIAR = "south"
FOUR = ("east", *SITES)


@pytest.mark.slow
def test_a_lying_site_is_tolerated(rows, loopback, submit, sabotage):
    """It claims the smallest rank for all its rows: no record shows it."""
    states = {name: loopback.folder / name / "state" for name in SITES}
    settings = {"regime": "counts", "level": "0.1", "train_fraction": "1/2"}
    limits, true_limits = {}, {}
    for liars in (0, 1):
        reached = sabotage(site=LIAR, when="START", do="lie")
        account = submit(**settings, seed=7, counting="committed", liars=liars)
        assert reached.exists()
        assert account["state"] == "done", account["message"]
        assert verify(account) == []
        assert (
            f"if {'at most 1 members lie' if liars else 'no member lies'} about"
            in (account["guarantee"])
        )
        run_id = account["terms"]["run_id"]
        honest = in_one_process(rows, states, 7, run_id, scorer=SCORER, **settings).run()
        blocks = [
            ([1] * len(site.ranks) if name == LIAR else site.ranks, site.n_calibration)
            for name, site in honest.items()
        ]
        expected = fast_lsu(blocks, "0.1", liars=liars)
        for name, limit in zip(honest, expected.limits, strict=True):
            own = read_json(loopback.folder / name / "results" / run_id / "run.json")
            assert own["limit"] == limit
        limits[liars] = expected.limits[0]
        ranks = [(site.ranks, site.n_calibration) for site in honest.values()]
        true_limits[liars] = fast_lsu(ranks, "0.1").limits[0]
    assert limits[1] <= true_limits[1]
    assert true_limits[0] < limits[0]  # the liar moved everybody where none is tolerated


@pytest.mark.slow
def test_a_run_of_four_sites_tolerates_a_liar_unless_the_operator_writes_another_number(tmp_path):
    drawn = gaussian_design(0.5, 1, n_agents=4, n_null=2000, n_test=400)
    rows = {
        name: tuple({f"x{j}": x for j, x in enumerate(part.T)} for part in (a.X_null, a.X_test))
        for name, a in zip(FOUR, drawn, strict=True)
    }
    federation = Loopback(tmp_path / "four", rows, model=f'scorer = "{SCORER}"')
    told = []
    try:
        federation.bring_up()
        for options in ((), ("--liars", "0")):
            out = tmp_path / f"outcome{len(told)}.json"
            asked = ("run", "--federation", str(federation.settings(OPERATOR)), "--out", str(out))
            ended = federation.run(*asked, "--regime", "counts", *options)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            account = read_json(out)
            assert verify(account) == []
            told.append((account["terms"]["spec"]["liars"], account["guarantee"]))
    finally:
        federation.stop()
    assert [liars for liars, _ in told] == [1, 0]
    assert "if at most 1 members lie about" in told[0][1]
    assert "if no member lies about" in told[1][1]
