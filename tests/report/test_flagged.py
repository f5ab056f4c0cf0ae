"""The analyst's part of a page: in the file, and in Chromium with 10,000 rows."""

import copy
import csv
import io
import json
import re

import numpy as np
import pytest
from support.reports import SCRIPT, Page

import conovel as cn
from conovel.errors import RunFileError
from conovel.report import of_detection, render
from conovel.report.flagged import page_script
from conovel.runs.verdict_tables import read_verdicts

FORMULA = '=HYPERLINK("http://x","y")'


@pytest.fixture(scope="module")
def content():
    """Return a detection with names that a page or a spreadsheet could take for code."""
    rng = np.random.default_rng(0)
    X_test = rng.normal(size=(200, 3))
    X_test[160:180, 0] += 6
    X_test[180:, 1] -= 6
    ids = [f"row-{i}" for i in range(200)]
    ids[170:173] = [SCRIPT, FORMULA, "-1+2"]
    result = cn.AdaDetect("logistic").detect(rng.normal(size=(900, 3)), X_test, ids=ids)
    reasons = result.most_novel_reasons().to_dict(result.n_rejected)
    return json.loads(
        json.dumps(
            {
                "command": "detect",
                **result.summary(),
                "picture": of_detection(result),
                "reasons": {"": reasons},
            }
        )
    )


def many(content, n):
    """Repeat the explained rows until there are n."""
    big = copy.deepcopy(content)
    site = big["reasons"][""]
    rows = site["rows"]
    site["rows"] = [{**rows[i % len(rows)], "row": f"row-{i}"} for i in range(n)]
    site["flagged"] = n
    return big


def test_a_row_like_known_novelties_says_so_in_the_page(content):
    alike = copy.deepcopy(content)
    first = alike["reasons"][""]["rows"][0]
    first["known"] = {"n_rows": 7, "kind": SCRIPT, "n_of_kind": 7}
    html = render(alike)
    page = Page(html)
    assert "like 7 known rows of kind" in " ".join(page.words)
    assert SCRIPT not in html
    assert "like 7" not in " ".join(Page(render(content)).words)
    first["known"] = {"n_rows": "7"}
    with pytest.raises(RunFileError, match="n_rows"):
        render(alike)


def test_patterns_and_rows_are_in_the_page_without_a_script(content):
    page = Page(render(content))
    text = " ".join(page.words)
    assert "Why these rows?" in text
    assert "column 0 high" in text
    assert "column 1 low" in text
    assert text.index("Why these rows?") < text.index("For the auditor")
    assert text.index("For the auditor") < text.index("What is guaranteed")
    assert not [name for name in page.attributes if name.startswith("on")]


def test_names_cannot_leave_the_data(content):
    text = render(content)
    assert SCRIPT not in text
    (data,) = re.findall(r'id="flagged-data">(.*?)</script>', text, re.DOTALL)
    assert any(row[0] == SCRIPT for row in json.loads(data)["rows"])


def test_only_the_script_of_the_page_may_run(content):
    text = render(content)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert page_script()["policy"].strip("'") in policy.replace("&#39;", "'")
    assert "default-src 'none'" in policy.replace("&#39;", "'")
    picture = {k: v for k, v in content["picture"].items() if k != "lists"}
    without = {k: v for k, v in content.items() if k != "reasons"} | {"picture": picture}
    without = render(without)
    assert "script-src" not in without
    assert "<script" not in without


def test_only_the_most_novel_rows_may_have_reasons(content):
    assert "1,000 rows were flagged" in render(
        {**content, "reasons": {"": _flagged(content, 1000)}}
    )


def _flagged(content, n):
    return {**content["reasons"][""], "flagged": n}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["rows", 0, "pattern"], 99, "pattern is none of the patterns"),
        (["rows", 0, "reasons", 0, "columns"], [7], "columns is none of the columns"),
        (["rows", 0, "reasons", 0, "share"], "x", "share is not a number"),
        (["rows"], 3, "rows is not a list"),
        (["columns", 0, "name"], None, "name is not a text"),
    ],
)
def test_a_broken_file_is_named(content, path, value, message):
    broken = copy.deepcopy(content)
    place = broken["reasons"][""]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(RunFileError, match=message):
        render(broken)


@pytest.fixture
def opened(browser, content, tmp_path, request):
    """Open a page of 10,000 flagged rows, offline."""
    n, width, scheme = getattr(request, "param", (10_000, 1280, "light"))
    file = tmp_path / "page.html"
    file.write_text(render(many(content, n) if n else content), encoding="utf-8")
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(file.as_uri())
    yield page
    assert page.complaints == []
    context.close()


def shown(page):
    return page.locator("#flagged-rows tr").count()


def test_ten_thousand_rows_can_be_sorted_and_filtered(opened):
    assert shown(opened) == 50
    assert opened.inner_text("#flagged-count") == "10,000 rows, 50 shown"
    opened.click("#flagged-more")
    assert shown(opened) == 550
    opened.click("#flagged-table thead button:text('row')")
    first = [opened.inner_text(f"#flagged-rows tr:nth-child({i}) th") for i in (1, 2, 3)]
    assert first == ["row-0", "row-1", "row-2"]
    opened.click("#flagged-table thead button:text('row')")
    assert opened.inner_text("#flagged-rows tr:first-child th") == "row-9999"
    assert opened.get_attribute("#flagged-table th[data-key=row]", "aria-sort") == "descending"
    opened.fill("#flagged-filter", "row-777 high")
    opened.locator("#flagged-rows tr:nth-child(50)").wait_for(state="detached")
    names = opened.locator("#flagged-rows th").all_inner_texts()
    assert names
    assert all("row-777" in name for name in names)
    opened.fill("#flagged-filter", "")
    opened.click("button[data-pattern='column 1 low']")
    texts = opened.locator("#flagged-rows summary").all_inner_texts()
    assert all("column 1 low" in text for text in texts)
    opened.click("#flagged-rows tr:first-child summary")
    assert "normally" in opened.inner_text("#flagged-rows tr:first-child dd >> nth=0")


@pytest.mark.parametrize("opened", [(0, 1280, "light")], indirect=True)
def test_copied_cells_cannot_be_formulas(opened):
    with opened.expect_download() as saved:
        opened.click("#flagged-save")
    with open(saved.value.path(), newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(io.StringIO(file.read())))
    names = {row["row"] for row in rows}
    assert SCRIPT in names
    assert f"'{FORMULA}" in names
    assert "'-1+2" in names
    values = [row["value_1"] for row in rows]
    assert any(value.startswith("-") for value in values)  # a negative number stays one
    assert all(np.isfinite(float(value)) for value in values)
    opened.click("#flagged-copy")
    opened.locator("#flagged-said", has_text="CSV").wait_for()


@pytest.mark.parametrize("opened", [(0, 360, "dark"), (0, 1280, "light")], indirect=True)
def test_verdicts_are_kept_and_saved_by_the_page(opened, tmp_path):
    assert opened.is_disabled("#verdicts-save")
    first = opened.locator("#flagged-rows tr").nth(0)
    name = first.locator("th").inner_text()
    first.locator(".judge button", has_text="novel").focus()
    opened.keyboard.press("Enter")
    opened.keyboard.press("Tab")
    second = opened.locator("#flagged-rows tr").nth(1)
    second.locator(".judge button", has_text="unclear").click()
    second.locator(".judge button", has_text="normal").click()
    third = opened.locator("#flagged-rows tr").nth(2)
    third.locator(".judge button", has_text="normal").click()
    third.locator(".judge button", has_text="normal").click()  # taken back
    first.locator("summary").click()
    first.locator("label", has_text="Kind").locator("input").fill("mule account")
    first.locator("label", has_text="Note").locator("input").fill('=1+1, "called"')
    assert opened.inner_text("#verdicts-save") == "Save verdicts (2)"
    opened.click("#flagged-table thead button:text('row')")
    opened.fill("#flagged-filter", name)
    row = opened.locator("#flagged-rows tr", has=opened.locator("th", has_text=name)).first
    assert row.locator("[aria-pressed=true]").inner_text() == "novel"
    with opened.expect_download() as saved:
        opened.click("#verdicts-save")
    assert saved.value.suggested_filename == "verdicts.csv"
    saved.value.save_as(tmp_path / "verdicts.csv")
    records = read_verdicts(tmp_path / "verdicts.csv")
    assert [one["verdict"] for one in records] == ["novel", "normal"]
    assert records[0]["id"].removeprefix("'") == name
    assert (records[0]["kind"], records[0]["note"]) == ("mule account", '\'=1+1, "called"')


def test_verdicts_of_a_network_name_the_agent(browser, content, tmp_path):
    changed = copy.deepcopy(content)
    changed["reasons"] = {name: content["reasons"][""] for name in ("north", "south")}
    file = tmp_path / "page.html"
    file.write_text(render(changed), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    page.fill("#flagged-filter", "south")
    page.locator("#flagged-rows tr td", has_text="north").first.wait_for(state="detached")
    page.locator("#flagged-rows .judge button", has_text="normal").first.click()
    with page.expect_download() as saved:
        page.click("#verdicts-save")
    saved.value.save_as(tmp_path / "verdicts.csv")
    [record] = read_verdicts(tmp_path / "verdicts.csv")
    assert (record["agent"], record["verdict"]) == ("south", "normal")
    page.close()


def test_a_long_name_is_whole_in_a_file_of_verdicts(content):
    changed = copy.deepcopy(content)
    changed["reasons"][""]["rows"][0]["row"] = "x" * 300
    (data,) = re.findall(r'id="flagged-data">(.*?)</script>', render(changed), re.DOTALL)
    rows = json.loads(data)["rows"]
    assert [row[5] for row in rows if len(row) == 6] == ["x" * 300]


@pytest.mark.parametrize("opened", [(0, 360, "dark"), (0, 1280, "light")], indirect=True)
def test_it_fits_and_can_be_used_without_seeing_it(opened):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for folded in opened.query_selector_all("details"):
        folded.evaluate("element => element.open = true")
    opened.wait_for_timeout(50)
    results = axe.Axe().run(opened)
    assert results.response["violations"] == [], results.generate_report()
    width = opened.viewport_size["width"]
    assert opened.evaluate("document.documentElement.scrollWidth") == width
