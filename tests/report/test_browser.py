"""The report as a reader meets it: in Chromium, on a phone and on a desk, light and dark."""

import re
from itertools import pairwise

import numpy as np
import pytest
from support.reports import CHROMIUM

import conovel as cn
from conovel.experiments.gaussian import gaussian_design
from conovel.report import network_content, of_detection, render
from conovel.report.lists import lists_script

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (the extra dev)")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra dev")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

KINDS = ("one site", "network", "alone", "experiment")


def _contents():
    rng = np.random.default_rng(0)
    X_test = np.vstack([rng.normal(size=(90, 3)), rng.normal(4, 1, size=(10, 3))])
    ids = [f"a-rather-long-name-of-a-row-that-has-to-break-somewhere-{i}" for i in range(100)]
    result = cn.AdaDetect(["logistic", "extra-trees"]).detect(
        rng.normal(size=(600, 3)), X_test, ids=ids
    )
    yield {"command": "detect", **result.summary(), "picture": of_detection(result)}
    rows = gaussian_design(1.0, 0, n_null=900, n_test=300)
    agents = [cn.Agent(n, r.X_null, r.X_test) for n, r in zip("abc", rows, strict=True)]
    truth = {name: r.is_novel for name, r in zip("abc", rows, strict=True)}
    for regime in ("full", "isolated"):
        yield network_content(
            cn.Network(agents, regime=regime, scorer="logistic", composite="mean", bits=4).run(),
            truth,
        )
    columns = ["δ", *(f"regime {i}" for i in range(12))]
    table = {"title": "Power", "columns": columns, "rows": [["0", *["0.95 ± 0.01"] * 12]]}
    yield {"command": "reproduce", "experiment": "shift", "tables": [table], "figures": ["f.svg"]}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    size = 'width="1500" height="300"'
    script = "<script>document.title = 'ran'; alert(1)</script>"
    (folder / "f.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{script}</svg>')
    for kind, content in zip(KINDS, _contents(), strict=True):
        (folder / f"{kind}.html").write_text(render(content, folder), encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=[(360, "dark"), (1280, "light")], ids=["phone", "desk"])
def screen(request):
    return request.param


@pytest.fixture(scope="module", params=KINDS)
def page(request, browser, pages, screen):
    """Open a page that may not load anything from elsewhere, and note what it complains about."""
    width, scheme = screen
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True
    )
    opened = context.new_page()
    opened.complaints = []
    opened.on("console", lambda message: opened.complaints.append(message.text))
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.on("requestfailed", lambda asked: opened.complaints.append(asked.url))
    opened.goto((pages / f"{request.param}.html").as_uri())
    for folded in opened.query_selector_all("details"):
        folded.evaluate("element => element.open = true")
    yield opened
    context.close()


def test_it_fits_its_screen_and_is_quiet(page, screen):
    assert page.complaints == []
    assert page.title().endswith("conovel report")
    assert page.evaluate("document.documentElement.scrollWidth") == screen[0]
    outside = page.evaluate(
        """() => [...document.querySelectorAll("h1, h2, p, li, dt, dd, figure, .scroll")]
            .filter(e => e.getClientRects().length && !e.closest(".scroll table"))
            .map(e => [e.tagName, e.getBoundingClientRect()])
            .filter(([tag, box]) => box.left < 0 || box.right > innerWidth + 0.5)
            .map(([tag, box]) => `${tag} ${box.left} ${box.right}`)"""
    )
    assert outside == []


def test_letters_in_plots_can_be_read_and_do_not_touch(page):
    for letters in page.evaluate(
        """() => [...document.querySelectorAll("svg[role=img]")].map(svg =>
            [...svg.querySelectorAll("text")].map(text => {
                const box = text.getBoundingClientRect();
                const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
                const size = parseFloat(getComputedStyle(text).fontSize) * scale;
                return [text.textContent, size, box.left, box.right, box.top, box.bottom];
            }))"""
    ):
        assert all(size >= 9.5 for _, size, *_ in letters)
        for i, (one, _, left, right, top, bottom) in enumerate(letters):
            assert left >= 0, one
            for other, _, left2, right2, top2, bottom2 in letters[i + 1 :]:
                across = min(right, right2) - max(left, left2)
                down = min(bottom, bottom2) - max(top, top2)
                assert across <= 1 or down <= 5, (one, other)  # boxes are taller than letters


def test_it_can_be_used_without_seeing_it(page):
    results = axe.Axe().run(page)
    assert results.response["violations"] == [], results.generate_report()
    assert page.get_attribute("html", "lang") == "en"
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("svg:not([aria-hidden]), img")].filter(e =>
            e.tagName == "IMG" ? !e.alt : !(e.getAttribute("aria-labelledby") || "").split(" ")
                .every(id => document.getElementById(id)?.textContent.trim())).length"""
    )
    assert unnamed == 0
    for table in page.query_selector_all("table"):
        assert table.query_selector("caption").text_content().strip()
        assert table.query_selector("th:not([scope])") is None
        assert len(table.query_selector_all("tbody tr")) == len(
            table.query_selector_all("tbody th[scope=row]")
        )


def test_nothing_in_it_runs(browser, pages):
    assert not re.search(r"<script|\son\w+=", (pages / "experiment.html").read_text("utf-8"))
    network = (pages / "network.html").read_text("utf-8")
    assert not re.search(r"\son\w+=", network)
    (policy,) = re.findall(r"script-src ([^\"]*)", network)
    assert policy.split() == [lists_script()["policy"].replace("'", "&#39;")]
    opened = browser.new_page()
    opened.goto((pages / "experiment.html").as_uri())
    assert opened.title() != "ran"  # what a figure's script would have made of it
    assert opened.evaluate("document.querySelector('img').naturalWidth") == 1500
    with pytest.raises(sync_api.Error, match="Content Security Policy"):
        opened.add_script_tag(content="document.title = 'ran'")
    opened.close()
