"""Hashes of what `make` installs: written from the index, and compared with what pip installed.

    python packaging/hashes.py write              # for every version of constraints.txt
    python packaging/hashes.py write FILE         # anew for every version in this file
    python packaging/hashes.py check REPORT       # what `pip install --report REPORT` installed

`hashes.txt` has one line for each package: its version and the SHA-256 of every file of that
version, for all platforms. `pip install --require-hashes -r hashes.txt` accepts it. `write` asks
the index that pip is set up with, so it needs a network. `check` needs the standard library only.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS, HASHES = ROOT / "constraints.txt", ROOT / "hashes.txt"
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")
_HEAD = (
    "# Written by  python packaging/hashes.py write;  make compares what it installs with this.\n"
)


def canonical(name: str) -> str:
    """Return the one spelling of the name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, str]:
    """Return the versions in a file, by package."""
    return {canonical(n): v for n, v in _PIN.findall(_without_comments(path))}


def known_hashes(path: Path = HASHES) -> dict[tuple[str, str], set[str]]:
    """Return the hashes of every package and version."""
    found = {}
    for line in _without_comments(path).splitlines():
        if pin := _PIN.match(line):
            hashes = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
            found[canonical(pin[1]), pin[2]] = hashes
    return found


def _without_comments(path: Path) -> str:
    return re.sub(r"(?m)^#.*$", "", path.read_text(encoding="utf-8"))


def objections(report: dict, known: dict[tuple[str, str], set[str]]) -> list[str]:
    """Say what pip installed that is not a file with a known hash."""
    found = []
    for one in report["install"]:
        name, version = one["metadata"]["name"], one["metadata"]["version"]
        about = one["download_info"]
        if "dir_info" in about:  # conovel itself
            continue
        archive = about.get("archive_info", {})
        digest = archive.get("hashes", {}).get("sha256")
        if digest is None and str(archive.get("hash", "")).startswith("sha256="):
            digest = archive["hash"].removeprefix("sha256=")
        hashes = known.get((canonical(name), version))
        if hashes is None:
            found.append(f"{name} {version} is not in hashes.txt")
        elif digest not in hashes:
            found.append(f"{name} {version} was installed from a file with another hash: {digest}")
    return found


def check(report: Path) -> None:
    """Fail if something was installed that hashes.txt does not know."""
    if wrong := objections(json.loads(report.read_text(encoding="utf-8")), known_hashes()):
        sys.exit("\n".join([*wrong, "nothing of it was run; remove the environment"]))


def write(source: Path, target: Path, head: str) -> None:
    """Ask the index for the files of every version in a file."""
    lines = []
    for name, version in sorted(pins(source).items()):
        hashes = _hashes_on_index(name, version)
        if not hashes:
            sys.exit(f"the index has no hashes of {name} {version}")
        parts = [f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in sorted(hashes))]
        lines.append(" ".join(parts))
        print(name, version, len(hashes), flush=True)
    target.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def _hashes_on_index(name: str, version: str) -> set[str]:
    """Return the hashes of all files of a version; pip reads the pages of the index."""
    from pip._internal.commands.install import InstallCommand
    from pip._internal.index.collector import parse_links
    from pip._internal.models.link import Link
    from pip._vendor.packaging.utils import parse_sdist_filename, parse_wheel_filename
    from pip._vendor.packaging.version import Version

    command = InstallCommand("install", "")
    options, _ = command.parse_args([])
    collector = command._build_package_finder(options, command._build_session(options))
    found = set()
    for url in collector._link_collector.search_scope.get_index_urls_locations(name):
        page = collector._link_collector.fetch_response(Link(url))
        for link in parse_links(page) if page is not None else ():
            parse = (
                parse_wheel_filename if link.filename.endswith(".whl") else parse_sdist_filename
            )
            try:
                released = parse(link.filename)[1]
            except ValueError:
                continue
            digest = link._hashes.get("sha256")
            if digest and released == Version(version):
                found.add(digest)
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        write(CONSTRAINTS, HASHES, _HEAD)
    elif len(sys.argv) == 3 and sys.argv[1] == "write":
        file = Path(sys.argv[2])
        write(file, file, file.read_text(encoding="utf-8").partition("\n")[0] + "\n")
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        check(Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
