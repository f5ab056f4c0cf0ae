"""Install the wheel and the sdist in clean environments, and use them: ``make package-test``.

Called with the folder of both files and the interpreters to try. An interpreter that does not run
here is named and left out. The exit code is 1 if an installed package fails, or if there is no
interpreter at all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGES = [HERE.parent / "README.md", HERE.parent / "docs" / "start.md"]
CONSTRAINTS = HERE.parent / "constraints.txt"


def version_of(interpreter: str) -> str:
    """Return the version of an interpreter; an empty text if it does not run."""
    command = [interpreter, "-c", "import platform; print(platform.python_version())"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def try_file(interpreter: str, file: Path) -> bool:
    """Install a file without extras in a new environment and use it from an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "env" / "bin" / "python"
        work = Path(folder) / "work"
        work.mkdir()
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # Nothing but the installed package may be imported.
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        for command in (
            [interpreter, "-m", "venv", Path(folder) / "env"],
            [*install, "-c", CONSTRAINTS, file],
            [python, "-I", HERE / "use_package.py"],
            [python, "-I", HERE / "run_pages.py", *PAGES],
        ):
            if subprocess.run(command, cwd=work, env=clean, check=False).returncode:
                return False
    return True


def main(folder: Path, interpreters: list[str]) -> int:
    """Try every file with every interpreter; return the exit code."""
    files = sorted([*folder.resolve().glob("*.whl"), *folder.resolve().glob("*.tar.gz")])
    if len(files) != 2:
        sys.exit(f"{folder} must hold a wheel and an sdist: run make dist")
    tried, failed = 0, 0
    for interpreter in interpreters:
        version = version_of(interpreter)
        if not version:
            print(f"{interpreter}: does not run here, left out", flush=True)
            continue
        for file in files:
            works = try_file(interpreter, file)
            tried, failed = tried + 1, failed + (not works)
            print(f"Python {version}, {file.name}: {'works' if works else 'FAILS'}", flush=True)
    print(f"{tried - failed} passed, {failed} failed")
    return 1 if failed or not tried else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
