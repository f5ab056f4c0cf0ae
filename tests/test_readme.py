"""What the README names exists. Its examples and commands are run by tests/test_bare.py."""

import re
from pathlib import Path

import numpy as np
import pytest

import conovel as cn

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_the_make_targets_and_the_marker():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([\w-]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    assert "`slow`" in README


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md"])
def test_pictures_and_links_exist(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).is_file()] == []


def one_site(seed):
    """The README's example of one site, from its random draw to its result, with another seed."""
    example = next(
        one for one in re.findall(r"```python\n(.*?)```", README, re.S) if "detect(" in one
    )
    lines = example.partition("result = ")[0].replace("default_rng(1)", f"default_rng({seed})")
    names = {}
    exec(lines, names)
    rejected = cn.AdaDetect(level=0.1).detect(names["X_null"], names["X_test"]).rejected
    return int(rejected[:180].sum()), int(rejected[180:].sum())


def test_the_example_of_one_site_is_near_its_promise():
    false, right = one_site(1)
    said = re.search(r"It flags (\d+) rows and finds all (\d+) novelties: (\d+) of", README)
    assert tuple(map(int, said.groups())) == (false + right, right, false)
    assert 0.05 <= false / (false + right) <= 0.1


@pytest.mark.slow
def test_the_mean_over_seeds_is_as_the_readme_has_it():
    pairs = np.array([one_site(seed) for seed in range(200)])
    shares = 100 * pairs[:, 0] / pairs.sum(axis=1)
    mean, error = re.search(r"is ([\d.]+) % \(standard error ([\d.]+) %\)", README).groups()
    assert f"{shares.mean():.1f}" == mean
    assert f"{shares.std(ddof=1) / 200**0.5:.1f}" == error
    assert shares.mean() <= 10 + 3 * float(error)
