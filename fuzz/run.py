"""Change valid inputs at random: ``python -m fuzz.run --runs 100000``.

Every format of :mod:`fuzz.formats`, or those that are named. The same seed gives the same inputs.
The first input that ends in anything but a named error is shown with its seed, and the exit code
is 1. ``--only 1234`` tries one input again.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from random import Random

from fuzz.formats import FORMATS


def try_one(name: str, seed: int) -> str:
    """Make one input of a format, and judge it."""
    form = FORMATS[name]
    random = Random(f"{name} {seed}")  # noqa: S311
    changed = form.change(random, random.choice(form.inputs()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return form.judge(changed)


def main() -> None:
    """Run all formats that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", choices=[[], *FORMATS], default=[])
    parser.add_argument("--runs", type=int, default=10_000, help="inputs of each format")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--only", type=int, help="try the input of this seed alone")
    asked = parser.parse_args()
    for name in asked.formats or FORMATS:
        seeds = range(asked.start, asked.start + asked.runs)
        outcomes: Counter[str] = Counter()
        for seed in seeds if asked.only is None else [asked.only]:
            try:
                outcomes[try_one(name, seed)] += 1
            except Exception:
                print(f"{name}: the input of --only {seed} is a fault", file=sys.stderr)
                raise
        print(f"{name}: {outcomes.total()} inputs:", dict(outcomes.most_common()), flush=True)


if __name__ == "__main__":
    main()
