"""Exchange roles on pairs of column types: ``python -m fuzz.columns [CASES] [SEED]``.

Every ordered pair of forms of `tests/support/forms.py` is tried in memory, and draws of them
in files, with further texts, with missing values, and with kinds that were asked for. Each has to
end in the same scores, bit for bit, or in a ConovelError.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.forms import FAMILIES
from support.spellings import pairs, some_of, try_case


def main(n_drawn: int = 2000, seed: int = 0) -> int:
    """Try all pairs and so many drawn cases; the number of failures."""
    every = [case for family in FAMILIES for case in pairs(family)]
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for i, case in enumerate([*every, *some_of(every * 4, n_drawn, seed)]):
            end = try_case(case, Path(folder) / str(i), seed)
            ends[end.split(":")[0]] += 1
            if end.startswith("FAILED"):
                print(f"{case}\n    {end}")
            if (i + 1) % 200 == 0:
                print(f"{i + 1} cases: {dict(ends)}", file=sys.stderr)
    print(dict(ends))
    return ends["FAILED"]


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
