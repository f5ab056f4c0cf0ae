"""The page: names in a run stay text, and colours can be told apart."""

import copy
import re
from pathlib import Path

import pytest
from support.reports import PLAIN, SCRIPT, Page, has_reasons

import conovel as cn
from conovel.report import network_content, render

STYLE = Path(cn.__file__).parent / "report" / "templates" / "style.css"


def test_names_stay_text(detection, runs):
    for content in (detection, runs["full"], runs["isolated"]):
        page = Page(render({**content, "scorer": SCRIPT, "null": SCRIPT}))
        n_lists = max(1, len(content.get("decisions", ())))  # each has its data; one has the code
        assert page.tags.count("script") == (2 if has_reasons(content) else 0) + n_lists + 1
        assert SCRIPT in "".join(page.words)
        assert not [name for name in page.attributes if name.startswith("on")]


@pytest.mark.parametrize("name", ['" onload="alert(1)', "</title><img src=x onerror=alert(1)>"])
def test_names_cannot_leave_attributes_or_titles(rows, name):
    agents = [cn.Agent(n, rows["north"].X_null, rows["north"].X_test) for n in (name, "other")]
    page = Page(render(network_content(cn.Network(agents, regime="counts", **PLAIN).run())))
    assert name in "".join(page.words)
    assert "img" not in page.tags
    assert not [attribute for attribute in page.attributes if attribute.startswith("on")]


def test_half_a_character_and_endless_names_do_no_harm(detection):
    content = copy.deepcopy(detection)
    content["picture"]["most_novel"][0]["row"] = "\ud800" + "x" * 10**6
    page = render(content)
    page.encode("utf-8")
    assert len(page) < 200_000


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    lighter, darker = sorted([luminance(one), luminance(other)], reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def palettes():
    blocks = re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf-8"), re.DOTALL)
    names = ("light", "dark", "print")
    return {
        name: dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
        for name, block in zip(names, blocks, strict=True)
    }


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_stands_out_and_fills_differ_without_hue(theme):
    colours = palettes()[theme]
    for text in ("ink", "soft", "accent", "doubt"):
        for ground in ("ground", "paper"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    # WCAG 2.2 asks 3:1 of graphics; bars are outlined in the accent.
    assert contrast(colours["accent"], colours["tests"]) >= 3
    assert contrast(colours["normals"], colours["paper"]) >= 3
