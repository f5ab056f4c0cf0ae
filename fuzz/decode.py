"""Fuzz `conovel.models.wire.decode`: ``python -m fuzz.decode -runs=1000000``.

Arguments go to libFuzzer as they are. Every input has to end in a `WireError` or in a model
whose only spelling it is and whose scores are finite, within the memory stated below.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["conovel"]):
    from fuzz.formats import judge_model, keep_small, reseal_model

HERE = Path(__file__).parent
LIMITS = ["-rss_limit_mb=1024", "-timeout=60", "-max_len=256"]
REPORT = 100_000

outcomes: Counter[str] = Counter()


def mutate(message: bytes, size: int, seed: int) -> bytes:
    """Change a message; all but one in sixteen keep a valid outside, most stay small."""
    changed = atheris.Mutate(message, size)
    draw = seed % 16
    if draw > 1:
        changed = keep_small(changed)
    return reseal_model(changed) if draw else changed


def fuzz(message: bytes) -> None:
    """Decode one message, and say now and then how messages end."""
    outcomes[judge_model(message)] += 1
    if (runs := outcomes.total()) % REPORT == 0:
        print(f"{runs} runs:", dict(outcomes.most_common()), file=sys.stderr)


def main() -> None:
    """Run until the arguments say to stop; new inputs are kept in a temporary folder."""
    finds = Path(tempfile.gettempdir()) / "conovel-fuzz"
    finds.mkdir(exist_ok=True)
    arguments = [*LIMITS, *sys.argv[1:], str(finds), str(HERE / "corpus")]
    atheris.Setup([sys.argv[0], *arguments], fuzz, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
