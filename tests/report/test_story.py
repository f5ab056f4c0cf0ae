"""What a page says about a detection and about a run, whoever kept its record."""

import copy

import numpy as np
import pytest
from support.reports import PLAIN, sections

import conovel as cn
from conovel.cli.simulate import _group_lines
from conovel.errors import RunFileError
from conovel.report import network_content, render
from conovel.report.network import settings_of
from conovel.report.page import story_of
from conovel.spec.run_spec import RunSpec


def test_differential_privacy_is_among_the_settings():
    said = settings_of(RunSpec.of(regime="full", privacy=4))["privacy"]
    assert said == "ε = 4, δ = 1/1000000, for every row in what each site learns and sends"
    assert "privacy" not in settings_of(RunSpec.of(regime="full"))


def test_one_site(detection):
    story = story_of(detection)
    assert story.headline == f"{detection['n_rejected']} of 100 rows flagged as novel"
    assert "at most 0.1" in story.guarantee
    assert story.assumptions == detection["guarantee"]["assumptions"]
    assert list(sections(story)) == [
        "Choose a list",
        "The most novel rows",
        "How it was decided",
        "Scores",
        "Resolution left",
        "Settings",
    ]
    first = sections(story)["The most novel rows"].tables[0].rows[0]
    assert "● flagged" in first


@pytest.mark.parametrize(
    "regime",
    ["isolated", "counts", "pooled", "split", "conservative", "full", "joint", "consensus"],
)
def test_every_regime(runs, regime):
    story = story_of(runs[regime])
    assert not story.warnings
    assert f"{runs[regime]['n_rejected']:,} of " in story.headline
    assert "at most 10 %" in story.guarantee
    assert "novelties were found" in story.lead
    titles = sections(story)
    counting = ("counts", "split", "full", "joint", "consensus")
    assert ("The counts" in titles) == (regime in counting)
    assert ("Rows that roam" in titles) == (regime == "consensus")
    assert "What was revealed to whom" in titles
    by_cells = {"joint": 1, "consensus": 1}
    rounds = len(runs[regime]["transcript"]["rounds"]) or by_cells.get(regime, 0)
    facts = dict(story.facts)
    told = facts.get("round of counts" if rounds == 1 else "rounds of counts", "0")
    assert told == str(rounds)
    assert (rounds > 0) == (regime in counting)
    curves = [p for p in titles["How it was decided"].plots if "tep-up" in p.title]
    n_curves = {"isolated": 3, "conservative": 3, "joint": 0, "consensus": 0}
    assert len(curves) == n_curves.get(regime, 1)
    render(runs[regime])


def test_without_a_picture_one_is_made_from_the_ranks(runs):
    content = copy.deepcopy(runs["full"])
    drawn = content.pop("picture")
    story = story_of(content)
    assert "Scores" not in sections(story)
    with_picture = sections(story_of(runs["full"]))["How it was decided"].plots
    assert sections(story)["How it was decided"].plots == with_picture
    for name, site in content["decisions"].items():
        m = len(site["ranks"])
        site["ids"], site["scores"] = [f"{name}-{i}" for i in range(m)], [0.5] * m
    table = sections(story_of(content))["The most novel rows"].tables[0]
    assert table.rows[0][0].startswith(tuple(drawn["sites"]))
    content["decisions"]["north"]["scores"] = ["high"] * len(
        content["decisions"]["north"]["ranks"]
    )
    with pytest.raises(RunFileError, match=r"decisions\.north\.scores is not a list of numbers"):
        story_of(content)


def test_one_sites_record_of_a_deployment(runs):
    content = copy.deepcopy(runs["full"])
    del content["picture"], content["truth"]
    content["command"] = "agent"
    content["decisions"] = {"north": content["decisions"]["north"]}
    transcript = content["transcript"]
    transcript["agents"] = {"north": transcript["agents"]["north"]}
    for round_ in transcript["rounds"]:
        round_["counts"] = {"north": round_["counts"]["north"]}
    story = story_of(content)
    assert "rows of north flagged" in story.headline
    assert ("flagged over all sites", str(content["n_rejected"])) in story.facts
    assert not story.warnings
    assert "all sites together" in story.lead
    assert "this site sent or received" in sections(story)["Messages"].words[0]
    others = [row for row in sections(story)["The sites"].tables[0].rows if row[0] != "north"]
    assert len(others) == 2
    assert all(row[2:] == ["", "", "", "", "not known", "", ""] for row in others)
    counts = sections(story)["The counts"]
    assert counts.tables[0].columns == ["round", "p-values counted", "north"]
    assert counts.plots == sections(story_of(runs["full"]))["The counts"].plots


def test_the_operators_record_has_no_rows(runs):
    content = {"command": "run", "guarantee": runs["full"]["guarantee"], "terms": {"level": "0.1"}}
    content["transcript"] = runs["full"]["transcript"]
    story = story_of(content)
    assert story.headline.startswith(f"{runs['full']['n_rejected']} of 300")
    assert "The most novel rows" not in sections(story)
    content["transcript"] = runs["isolated"]["transcript"]
    assert story_of(content).headline == "Every site decided for itself"


def test_a_run_that_was_broken_off_says_so(runs):
    content = {"command": "run", "state": "failed", "message": "south vanished"}
    content["transcript"] = {**runs["full"]["transcript"], "outcome": None}
    story = story_of(content)
    assert "nothing was decided" in story.headline
    assert (story.warnings, story.guarantee) == (["south vanished"], "")


def test_a_run_that_was_changed_is_shown_with_what_does_not_hold(runs):
    content = copy.deepcopy(runs["full"])
    site = content["decisions"]["north"]
    site["rejected"][site["rejected"].index(True)] = False
    story = story_of(content)
    assert any(sentence.startswith("north did not reject") for sentence in story.warnings)
    assert any("are drawn as flagged" in sentence for sentence in story.warnings)
    assert "What does not hold" in render(content)


def test_dropouts_are_named_and_their_assumption_with_them(rows):
    agents = [cn.Agent(name, r.X_null, r.X_test) for name, r in rows.items()]
    network = cn.Network(agents, regime="counts", on_dropout="conservative", **PLAIN)
    story = story_of(network_content(network.run(dropouts={"south": "counts"})))
    table = sections(story)["The sites"].tables[0]
    assert [row[1] for row in table.rows if row[0] == "south"] == ["lost in the counts"]
    assert "no site was lost because of what others counted" in story.assumptions
    assert not story.warnings


def test_an_unproven_setting_is_not_promised(runs):
    content = copy.deepcopy(runs["counts"])
    content["transcript"]["spec"]["pi0"] = "quantile:1/2"
    assert "no proof covers" in story_of(content).guarantee


def test_groups_say_what_became_of_every_site():
    rng = np.random.default_rng(3)
    agents = []
    sizes = [(f"{i:02d}", 60, 15, 2) for i in range(10)]
    for name, n_null, m, novel in (*sizes, ("many", 45, 15, 10), ("odd", 40, 800, 0)):
        X_test = rng.normal(size=(m, 2))
        X_test[:novel] += 6
        agents.append(cn.Agent(name, rng.normal(size=(n_null, 2)), X_test))
    run = cn.Network(agents, regime="joint", scorer="logistic", composite="mean").run()
    content = network_content(run)
    section = sections(story_of(content))["The counts"]
    rows = {row[0]: row[1:] for row in section.tables[0].rows}
    assert len(rows) == 12
    assert rows["odd"][0] == "2, cannot flag"
    assert rows["odd"][2:4] == ["no floor", "0%"]
    assert rows["many"][0] == "1"
    assert rows["many"][-1] == "reached"
    assert rows["00"][-1] == "not reached"
    assert rows["00"][4] == str(run["00"].n_calibration)
    assert any("could flag no row in this run: odd." in word for word in section.words)
    assert any("floor was reached at many" in word for word in section.words)
    lines = _group_lines(run.groups)
    assert lines[0].endswith("themselves: 11 agents; odd (could flag no row in this run)")
    assert "many" in lines[1]
    assert render(content)
    content["transcript"]["rooms"] = {}  # a file that contradicts itself has no groups
    assert story_of(content).warnings
    assert len(sections(story_of(content))["The counts"].tables) == 1


def test_the_page_of_a_list_speaks_of_the_list(rows, tmp_path):
    """The headline, the sentence below it and the first figures are about the same rows."""
    agents = [cn.Agent(name, site.X_null, site.X_test) for name, site in rows.items()]
    options = {"regime": "counts", "level": 0.2, "scorer": "logistic"}
    run = cn.Network(agents, ledger=tmp_path / "l", **options).run()
    story = story_of(network_content(run))
    n_listed = sum(site.parts["ledger"].n_listed for site in run.sites.values())
    assert story.headline == f"{n_listed} rows on the list of all batches"
    assert story.facts[:2] == [
        ("false alarms on the list, at most on average", "20 %"),
        ("rows on the list of all batches", f"{n_listed}"),
    ]
    assert f"In the run of this batch, {run.n_rejected} of " in story.lead
    assert "Resolution left" not in sections(story)
