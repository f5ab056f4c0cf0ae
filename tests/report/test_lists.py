"""Lists that a reader chooses: their numbers are those of certificates, and absent without one."""

import copy
import json

import numpy as np
import pytest
from support.reports import PLAIN, Page, sections
from typer.testing import CliRunner

import conovel as cn
from conovel.cli import app
from conovel.errors import RunFileError
from conovel.report import lists_of, network_content, of_detection, of_files, render
from conovel.report.list_numbers import MOST_NORMALS, MOST_STEPS, MOST_TESTS, by_rank, refuse_many
from conovel.report.page import story_of
from conovel.runs.file_detection import detect_files
from conovel.stats.certified import site_bounds
from conovel.stats.stepup import RankHistogram


def samples():
    rng = np.random.default_rng(0)
    X_test = np.vstack([rng.normal(size=(220, 3)), rng.normal(3, 1, size=(80, 3))])
    return rng.normal(size=(900, 3)), X_test


def content_of(result):
    picture = of_detection(result)
    return json.loads(json.dumps({"command": "detect", **result.summary(), "picture": picture}))


@pytest.fixture(scope="module")
def detected():
    return cn.AdaDetect("logistic").detect(*samples(), check=False)


def lists_in(content):
    return sections(story_of(content))["Choose a list"].lists


def words_of(content):
    return " ".join("".join(Page(render(content)).words).split())


def test_each_list_has_the_numbers_of_its_certificate(detected):
    (lists,) = lists_in(content_of(detected))
    certificate = detected.certificate(0.95)
    order = np.lexsort((-detected.scores, detected.ranks))
    for i, k in enumerate(lists.rows):
        mask = np.zeros(300, dtype=bool)
        mask[order[:k]] = True
        assert lists.least[i] == k - certificate.max_false_of(mask)
        assert lists.flagged[i] == (mask & detected.rejected).sum()
        assert lists.rank[i] == detected.ranks[order[k - 1]]
        assert lists.up_to[i] == (detected.ranks <= lists.rank[i]).sum()
        assert lists.least[i] <= lists.expected[i] <= k
    assert lists.rows[lists.start] == detected.n_rejected
    level = lists.expected[lists.start] / detected.n_rejected
    assert 0.9 - 1 / detected.n_rejected <= level  # it is flagged at a level of at most .1


def test_the_page_says_what_holds_for_the_flagged_rows_and_some_others(detected):
    content = content_of(detected)
    (lists,) = lists_in(content)
    words = words_of(content)
    k, i = detected.n_rejected, lists.start
    assert f"Of the {k} most novel rows at least {lists.least[i]} are novel, with 95 %" in words
    assert f"confidence; expected {lists.expected[i]}." in words
    assert [row[0] for row in lists.table.rows][:3] == ["10", "20", "50"]
    assert words.index("Choose a list") < words.index("For the auditor")


def test_which_rows_they_are(detected):
    (lists,) = lists_in(content_of(detected))
    said = [lists.which(i) for i in range(len(lists.rows))]
    assert said[lists.start].startswith(f"All rows with rank up to {lists.rank[lists.start]}.")
    assert "All are flagged." in said[lists.start]
    assert f"the first {lists.rows[4]} in the table of the most novel" in said[4]
    assert "in the table" not in said[-1]  # it has 100 rows
    assert f" {detected.n_rejected} of them are flagged." in said[-1]
    cut = next(i for i, k in enumerate(lists.rows) if k < lists.up_to[i])
    assert f"{lists.rows[cut]} of the {lists.up_to[cut]} rows with rank up to" in said[cut]


def test_the_confidence_is_that_of_the_result():
    sure = cn.AdaDetect("logistic", level=0.3, confidence=0.9).detect(*samples(), check=False)
    (lists,) = lists_in(content_of(sure))
    assert lists.sure == "90 %"
    assert lists.rows[lists.start] == sure.n_rejected
    assert lists_of(sure, "0.8")["of"][0]["confidence"] == "4/5"


@pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")
def test_where_nothing_is_flagged_the_list_that_proves_most_is_shown():
    null, test = samples()
    (lists,) = lists_in(content_of(cn.AdaDetect("logistic", level=0.01).detect(null[:120], test)))
    assert lists.n_flagged == 0 < lists.least[lists.start] == max(lists.least)
    assert lists.least[lists.start - 1] < max(lists.least)


def test_rows_in_files_have_the_same_lists(tmp_path, detected):
    null, test = samples()
    for name, rows in (("null", null), ("test", test)):
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="a,b,c", comments="")
    paths = tmp_path / "null.csv", tmp_path / "test.csv", tmp_path / "out.csv"
    read = detect_files(cn.AdaDetect("logistic"), *paths, check=False)
    histogram = RankHistogram(detected.ranks, detected.n_calibration)
    assert [histogram.at_most(r) for r in range(1, 500)] == [
        read.histogram.at_most(r) for r in range(1, 500)
    ]
    assert of_files(read)["lists"] == of_detection(detected)["lists"]
    assert "Choose a list" in read.report(tmp_path / "page.html").read_text("utf-8")


def test_a_million_rows_have_few_lists():
    m, size = 10**6, 10**5
    ranks = np.concatenate([np.ones(30_000, dtype=np.int64), np.arange(m - 30_000) % size + 1])
    content = by_rank(site_bounds(RankHistogram(ranks, size), 0.95), m, 30_000, 0.95)
    assert len(content["rows"]) < 1.5 * MOST_STEPS
    assert {10, 20, 50, 1000, 30_000} <= set(content["rows"])


def test_too_many_rows_are_refused(joint):
    refuse_many(MOST_NORMALS, MOST_NORMALS)
    for rows in ((MOST_NORMALS + 1, 1), (1, MOST_TESTS + 1)):
        with pytest.raises(cn.InputError, match="ask for certificate"):
            refuse_many(*rows)
    content = json.loads(json.dumps(network_content(joint)))
    content["transcript"]["agents"]["north"]["n_tested"] = 2**62
    assert [bool(lists.cell) for lists in lists_in(content)] == [False] * 3


# Networks -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def joint(rows):
    agents = [cn.Agent(name, site.X_null, site.X_test) for name, site in rows.items()]
    return cn.Network(agents, regime="joint", **PLAIN).run(check=False)


def test_a_network_has_lists_by_cells_and_each_agent_its_own(joint):
    whole, *own = lists_in(network_content(joint))
    certificate = joint.certificate(0.95)
    for i, cell in enumerate(whole.cell):
        masks = {name: site.cells >= max(cell, site.floor) for name, site in joint.items()}
        assert whole.rows[i] == sum(mask.sum() for mask in masks.values())
        assert whole.least[i] == whole.rows[i] - certificate.max_false_of(masks)
        assert whole.flagged[i] == sum((masks[n] & joint[n].rejected).sum() for n in masks)
    assert max(whole.least) == certificate.min_novelties
    assert whole.flagged[whole.start] == joint.n_rejected
    for lists, site in zip(own, joint.values(), strict=True):
        k = lists.rows.index(site.n_rejected)
        assert lists.least[k] == site.n_rejected - site.certificate(0.95).max_false


def test_what_all_cells_expect_is_what_one_pooled_step_up_allows(joint):
    whole, *_ = lists_in(network_content(joint))
    (group,) = joint.groups
    counts = joint.transcript.cell_counts.values()
    estimates = []
    for k, cell in zip(whole.rows, whole.cell, strict=True):
        beside = sum(sum(one.calibration[cell:]) for one in counts)
        estimates.append(k - float(group.weight) * (1 + beside))
    # The level of a list is at most that of a longer one.
    assert all(n >= int(e) for n, e in zip(whole.expected, estimates, strict=True))
    assert max(whole.expected) - max(estimates) < 1 or max(whole.expected) == max(whole.least)


def test_with_liars_the_page_says_whose_rows_it_is_about(rows):
    sites = list(rows.items())
    agents = [cn.Agent(f"{name}{i}", s.X_null, s.X_test) for i in (0, 1) for name, s in sites[:2]]
    run = cn.Network(agents, regime="joint", liars=1, **PLAIN).run(check=False)
    content = network_content(run)
    whole = lists_in(content)[0]
    assert max(whole.least) == run.certificate().min_novelties
    assert "about the rows of sites that do not lie" in words_of(content)


def test_regimes_without_a_common_scale_have_the_lists_of_agents_alone(runs):
    for regime in ("full", "counts", "isolated"):
        section = sections(story_of(runs[regime]))["Choose a list"]
        assert [bool(lists.cell) for lists in section.lists] == [False] * 3
        assert "over all sites" in section.words[-1]
        assert f"the regime '{regime}'" in section.words[-1]


@pytest.mark.parametrize("regime", ["split", "consensus", "pooled"])
def test_without_certificates_the_page_says_why(runs, regime):
    story = story_of(runs[regime])
    assert "Choose a list" not in sections(story)
    assert any("No list can be chosen here" in words for words in story.caveats)
    assert "Choose a list" not in words_of(runs[regime])


def test_with_repeats_and_a_ledger_the_page_says_why(tmp_path):
    null, test = samples()
    repeated = cn.AdaDetect("logistic", repeats=2).detect(null, test, check=False)
    assert "chosen here" in words_of(content_of(repeated))
    assert "evidence decides" in words_of(content_of(repeated))
    ledger = cn.Ledger(0.1)
    batch = cn.AdaDetect("logistic").detect(null, test, ledger=ledger, name="a", check=False)
    assert "ask the ledger" in words_of(content_of(batch))


def test_a_site_that_does_not_have_all_cells_has_its_own_list(joint):
    content = json.loads(json.dumps(network_content(joint)))
    content["decisions"] = {"north": content["decisions"]["north"]}
    del content["picture"], content["transcript"]["histograms"]["south"]
    section = sections(story_of(content))["Choose a list"]
    assert [lists.whose for lists in section.lists] == ["north"]
    assert "only the coordinator has them all" in section.words[-1]


def test_with_masks_each_site_has_the_lists_of_all(rows, few_trees):
    pytest.importorskip("cryptography")
    agents = [cn.Agent(f"a{i}", s.X_null, s.X_test) for i, s in enumerate(rows.values())]
    content = network_content(cn.Network(agents, regime="together", masks=True).run(check=False))
    content = json.loads(json.dumps(content))
    whole = lists_in(content)[0]
    assert whole.cell
    del content["picture"], content["reasons"]
    for part in (content["decisions"], content["transcript"]["agents"]):
        del part["a1"], part["a2"]
    (of_all, own) = lists_in(content)
    assert of_all == whole
    assert own.whose == "a0"


# Files that are not as they should be -------------------------------------------------------


def test_files_of_earlier_versions_have_no_lists(detected):
    content = content_of(detected)
    del content["picture"]["lists"]
    assert "Choose a list" not in words_of(content)
    assert "chosen here" not in words_of(content)


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("confidence", "sure"),
        ("rows", []),
        ("rows", [3, 2]),
        ("rows", [0, 1]),
        ("least", [1]),
        ("least", ["</script>"]),
        ("expected", 10**6),
        ("rank", None),
        ("n_flagged", -1),
    ],
)
def test_wrong_lists_are_refused(detected, part, wrong):
    broken = copy.deepcopy(content_of(detected))
    lists = broken["picture"]["lists"]["of"][0]
    lists[part] = [wrong] * len(lists["rows"]) if wrong == 10**6 else wrong
    with pytest.raises(RunFileError, match=part):
        render(broken)


def test_the_command_writes_lists_at_the_confidence_that_was_asked_for(tmp_path):
    for name, rows in zip(("null", "test"), samples(), strict=True):
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="a,b,c", comments="")
    files = ["--null", tmp_path / "null.csv", "--test", tmp_path / "test.csv"]
    out = tmp_path / "flagged.csv"
    settings = ["--scorer", "logistic", "--certificate", "0.9", "--reasons", "0", "--out", out]
    page = tmp_path / "page.html"
    for line in (["detect", *files, *settings], ["report", f"{out}.json", "-o", page]):
        ended = CliRunner().invoke(app, [str(word) for word in line], catch_exceptions=False)
        assert ended.exit_code == 0, ended.output
    written = json.loads((tmp_path / "flagged.csv.json").read_text("utf-8"))
    (lists,) = lists_in(written)
    i, certificate = lists.start, written["certificate"]
    assert lists.rows[i] - lists.least[i] == certificate["max_false"]
    assert lists.statement(i) in page.read_text("utf-8")
    assert lists.sure == "90 %"
