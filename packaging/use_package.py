"""Use the installed package as a user would: import, command line, a file, a small network."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

import conovel as cn

PROGRAM = Path(sys.executable).with_name("conovel")


def conovel(*arguments: str) -> str:
    """Run the installed command, and return what it prints."""
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"conovel {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def check(holds: object, what: str) -> None:
    """End with an error unless something holds."""
    if not holds:
        sys.exit(f"does not hold: {what}")


def write_csv(path: Path, rows: np.ndarray) -> None:
    """Write rows with a header."""
    names = ",".join(f"x{j}" for j in range(rows.shape[1]))
    np.savetxt(path, rows, delimiter=",", header=names, comments="")


def main() -> None:
    """Check everything; end with an error at the first that fails."""
    package = Path(cn.__file__).parent
    check(package.is_relative_to(sys.prefix), "the package is in this environment")
    check((package / "py.typed").exists(), "types are declared")
    check(cn.__version__ == version("conovel"), "the version is that of the metadata")
    check(cn.__version__ in conovel("--version"), "conovel --version tells the version")

    rng = np.random.default_rng(0)
    null, test = rng.normal(size=(400, 3)), rng.normal(size=(60, 3))
    test[:20] += 4.0
    write_csv(Path("null.csv"), null)
    write_csv(Path("test.csv"), test)
    conovel("detect", "--null", "null.csv", "--test", "test.csv", "--out", "flagged.csv")
    check(len(Path("flagged.csv").read_text().splitlines()) > 1, "conovel detect flags rows")

    halves = ((null[::2], test[::2]), (null[1::2], test[1::2]))
    agents = [cn.Agent(name, *rows) for name, rows in zip(("a", "b"), halves, strict=True)]
    check(cn.Network(agents, level=0.1).run().n_rejected > 10, "a network flags rows")


if __name__ == "__main__":
    main()
