"""Where the parts of a party find each other's files."""

from __future__ import annotations

from pathlib import Path

ENVIRONMENT = "CONOVEL_SETTINGS"  # where a process of the engine finds the party's TOML file
JOINED_FILE = "joined"  # there once the coordinator has accepted the site
PID_FILE = "supervisor.pid"
OWN_SEED_FILE = "seed-secret"  # mixed into the seed of every run; stays at the site
LOG_FILE = "engine.log"


def state_of(settings: Path) -> Path:
    """Give the folder of a party's records, beside its TOML file."""
    return settings.parent / "state"
