"""Choosing a list in Chromium: by keyboard, on a phone, in the dark, and without the script."""

import re

import numpy as np
import pytest
from support.reports import CHROMIUM, PLAIN, sections

import conovel as cn
from conovel.report import network_content, of_detection, render
from conovel.report.page import story_of

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (the extra dev)")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra dev")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def contents(rows):
    rng = np.random.default_rng(0)
    X_test = np.vstack([rng.normal(size=(4000, 3)), rng.normal(3, 1, size=(900, 3))])
    result = cn.AdaDetect("logistic").detect(rng.normal(size=(9000, 3)), X_test, check=False)
    agents = [cn.Agent(name, site.X_null, site.X_test) for name, site in rows.items()]
    run = cn.Network(agents, regime="joint", **PLAIN).run(check=False)
    return {
        "site": {"command": "detect", **result.summary(), "picture": of_detection(result)},
        "network": network_content(run),
    }


@pytest.fixture
def opened(browser, contents, tmp_path):
    contexts = []

    def open_page(kind, width=1280, scheme="light", **settings):
        path = tmp_path / f"{kind}.html"
        path.write_text(render(contents[kind]), encoding="utf-8")
        size = {"width": width, "height": 800}
        made = {"viewport": size, "color_scheme": scheme, "offline": True, **settings}
        contexts.append(browser.new_context(**made))
        page = contexts[-1].new_page()
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()


def lists_in(content):
    return sections(story_of(content))["Choose a list"].lists


@pytest.mark.parametrize("kind", ["site", "network"])
def test_keys_choose_a_list_and_the_page_says_its_numbers(opened, contents, kind):
    page = opened(kind)
    for folded in page.query_selector_all("details"):
        folded.evaluate("element => element.open = true")
    choices = page.locator(".lists").all()
    every = lists_in(contents[kind])
    assert len(choices) == len(every) == (1 if kind == "site" else 4)
    for choice, lists in zip(choices, every, strict=True):
        slider, last = choice.get_by_role("slider"), len(lists.rows) - 1
        slider.focus()
        at = lists.start
        marks = set()
        steps = [
            ("ArrowRight", 1),
            ("ArrowUp", 1),
            ("ArrowLeft", -1),
            ("Home", -last),
            ("End", last),
        ]
        for key, step in [("", 0), *steps, *[("ArrowLeft", -1)] * 5]:
            if key:
                slider.press(key)
            at = min(max(at + step, 0), last)
            assert slider.input_value() == str(at)
            assert choice.locator(".statement").inner_text() == lists.statement(at)
            assert choice.locator(".which").inner_text() == lists.which(at)
            assert slider.get_attribute("aria-valuetext") == lists.statement(at)
            marks.add(choice.locator("polyline.chosen").get_attribute("points"))
        assert len(marks) > 3  # the mark moves
        left, right = (
            choice.locator("svg[role=img]").evaluate(f"e => e.getBoundingClientRect().{side}")
            for side in ("left", "right")
        )
        slider.press("End")
        box = choice.locator("polyline.chosen").bounding_box()
        assert left < box["x"] <= right
    assert page.complaints == []


def test_every_list_is_said_as_python_says_it(opened, contents):
    page = opened("site")
    (lists,) = lists_in(contents["site"])
    said = page.evaluate(
        """() => { const slider = document.querySelector("input[type=range]"), said = [];
            for (let i = 0; i <= Number(slider.max); i++) {
                slider.value = i;
                slider.dispatchEvent(new Event("input"));
                said.push([document.querySelector(".lists .statement").textContent,
                    document.querySelector(".lists .which").textContent]);
            }
            return said; }"""
    )
    assert said == [[lists.statement(i), lists.which(i)] for i in range(len(lists.rows))]
    assert any("1,0" in words for words, _ in said)  # thousands are written alike


@pytest.mark.parametrize("kind", ["site", "network"])
def test_on_a_phone_in_the_dark(opened, kind):
    page = opened(kind, 360, "dark", has_touch=True, is_mobile=True)
    for folded in page.query_selector_all("details"):
        folded.evaluate("element => element.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    slider = page.get_by_role("slider").first
    box = slider.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    assert box["height"] >= 24
    before = page.locator(".lists .statement").first.inner_text()
    slider.tap(position={"x": 60, "y": box["height"] / 2})
    assert page.locator(".lists .statement").first.inner_text() != before
    results = axe.Axe().run(page)
    assert results.response["violations"] == [], results.generate_report()


def test_the_text_does_not_push_the_slider_away(opened):
    page = opened("site", 360)
    slider, places = page.get_by_role("slider"), set()
    slider.focus()
    for key in ("Home", "End", "ArrowLeft"):
        slider.press(key)
        places.add(page.evaluate("document.querySelector('input[type=range]').offsetTop"))
    assert len(places) == 1


def test_without_the_script_there_are_a_picture_and_a_table(opened, contents):
    page = opened("site", 360, java_script_enabled=False)
    (lists,) = lists_in(contents["site"])
    assert page.get_by_role("slider").count() == 0  # it would do nothing
    statement = page.locator(".lists .statement")
    assert statement.is_visible()
    assert statement.inner_text() == lists.statement(lists.start)
    assert page.locator(".lists svg[role=img]").is_visible()
    cells = page.locator(".lists table tbody tr").all_inner_texts()
    assert [re.split(r"\s+", line.strip()) for line in cells] == [
        list(row) for row in lists.table.rows
    ]
    assert [row[0] for row in lists.table.rows][:3] == ["10", "20", "50"]
