"""Contents to report on, and a page taken apart."""

import json
import shutil
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np

import conovel as cn
from conovel.report import network_content

PLAIN = {"composite": "mean", "bits": 4, "scorer": "logistic", "train_fraction": 0.5}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
SCRIPT = "<script>alert(1)</script>"


def three_sites():
    """Three sites whose novelties nobody can miss."""
    rng = np.random.default_rng(0)
    is_novel = np.arange(100) >= 85
    return {
        name: SimpleNamespace(
            X_null=rng.normal(size=(300, 3)),
            X_test=rng.normal(size=(100, 3)) + 5 * is_novel[:, None],
            is_novel=is_novel,
        )
        for name in ("north", "south", SCRIPT)
    }


def has_reasons(content):
    """Tell whether a result explains any row."""
    return any(site["rows"] for site in content.get("reasons", {}).values())


def network_run(sites, regime):
    """Run the sites in a regime; give back the content of its file."""
    agents = [cn.Agent(name, site.X_null, site.X_test) for name, site in sites.items()]
    truth = {name: site.is_novel for name, site in sites.items()}
    content = network_content(cn.Network(agents, regime=regime, **PLAIN).run(), truth)
    return json.loads(json.dumps(content))


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.words.append(data)


def sections(story):
    return {section.title: section for section in story.sections}
