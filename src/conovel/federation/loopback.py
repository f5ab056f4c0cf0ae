"""A whole federation on one machine: every party is a process with real certificates.

For the tutorial, the tests and the benchmark. The parties are started by the commands that a
person would type.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conovel.errors import FederationError
from conovel.federation import processes
from conovel.federation.kits import FederationPlan, make_federation
from conovel.federation.settings import FederationFile, read_federation
from conovel.rows.private_files import make_private_file
from conovel.rows.storage import write_table

COORDINATOR = "coordinator"
OPERATOR = "operator@example.org"
_MAIN = "from conovel.cli import main; main()"


class Loopback:
    """A federation on this machine."""

    def __init__(
        self,
        folder: Path,
        rows: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]],
        *,
        model: str = "",
        consent: str = "",
        environment: Mapping[str, str] | None = None,
        name: str = "loopback",
    ) -> None:
        self.folder, self.sites = folder, tuple(sorted(rows))
        self._environment = os.environ | dict(environment or {})
        self._parties: dict[str, subprocess.Popen[bytes]] = {}
        port, admin_port = free_ports()
        plan = FederationPlan(name, "localhost", self.sites, (OPERATOR,), port, admin_port)
        make_federation(plan, folder)
        for site, (null, test) in rows.items():
            write_table(folder / site / "normal.parquet", null)
            write_table(folder / site / "test.parquet", test)
            self.settings(site).write_text(
                f'[site]\nname = "{site}"\nkit = "kit"\n\n'
                '[data]\nnull = "normal.parquet"\ntest = "test.parquet"\n\n'
                f"[model]\n{model}\n\n[consent]\n{consent}\n"
            )

    @property
    def operator(self) -> FederationFile:
        """The operator's file."""
        return read_federation(self.settings(OPERATOR))

    @property
    def running(self) -> set[str]:
        """The parties that have not ended."""
        return {party for party, process in self._parties.items() if process.poll() is None}

    def settings(self, party: str) -> Path:
        """Return the path of a party's TOML file."""
        name = "site.toml" if party in self.sites else "federation.toml"
        return self.folder / party / name

    def console(self, party: str) -> str:
        """Return what a party has printed since it was started."""
        path = self.folder / party / "console.txt"
        return path.read_text() if path.exists() else ""

    def start(self, *parties: str, options: tuple[str, ...] = ()) -> None:
        """Start parties, in the order given."""
        for party in parties:
            command = "agent" if party in self.sites else "coordinate"
            arguments = [command, str(self.settings(party)), "--join-seconds", "240", *options]
            console_file = self.folder / party / "console.txt"
            make_private_file(console_file)
            with console_file.open("wb") as console:
                self._parties[party] = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-c", _MAIN, *arguments],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                )

    def bring_up(self, *options: str) -> None:
        """Start the parties that do not run, the coordinator first, and wait until all are up."""
        for parties in ((COORDINATOR,), self.sites):
            if down := [party for party in parties if party not in self.running]:
                self.start(*down, options=options)
            self.wait_until_up(*parties)

    def wait_until_up(self, *parties: str, seconds: float = 240.0) -> None:
        """Wait until parties print that they are up."""
        for party in parties:
            word = "is connected" if party in self.sites else "listens"
            process = self._parties[party]

            def is_settled(party: str = party, word: str = word) -> bool:
                return word in self.console(party) or self._parties[party].poll() is not None

            processes.wait_for(is_settled, seconds)
            if process.poll() is not None or word not in self.console(party):
                raise FederationError(f"{party} did not come up: {self.console(party)[-800:]}")

    def run(self, *arguments: str, shown: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command of conovel to its end; print its output if `shown`, else capture it."""
        command = [sys.executable, "-c", _MAIN, *arguments]
        return subprocess.run(  # noqa: S603
            command, env=self._environment, capture_output=not shown, text=True, check=False
        )

    def wait_for_reports(self, seconds: float = 30.0) -> None:
        """Wait until every agent has printed the end of its last run."""
        processes.wait_for(
            lambda: all(" done: " in self.console(site) for site in self.sites), seconds
        )

    def wait(self, party: str, seconds: float) -> int | None:
        """Wait for a party to end by itself; return its exit code, or None."""
        try:
            return self._parties[party].wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self, party: str) -> None:
        """Kill a party and its descendants."""
        process = self._parties.pop(party)
        processes.kill_tree(process.pid)
        process.wait()

    def kill_supervisor(self, party: str) -> None:
        """Kill the process of ``conovel agent`` or ``conovel coordinate``, and no other."""
        process = self._parties.pop(party)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Stop every party by SIGTERM; kill those that do not end."""
        for process in self._parties.values():
            process.terminate()
        for process in self._parties.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                processes.kill_tree(process.pid)
                process.wait()
        self._parties.clear()


def free_ports() -> tuple[int, int]:
    """Find two free ports."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
