"""Names of the files that the processes of a party share."""

from __future__ import annotations

from pathlib import Path

ENVIRONMENT = "CONOVEL_SETTINGS"  # environment variable with the path of the party's TOML file
PEERS_FILE = "peers"  # how many parties are connected; written again at every heartbeat
JOINED_FILE = "joined"  # exists once the coordinator has accepted the site
PID_FILE = "supervisor.pid"
OWN_SEED_FILE = "seed-secret"  # mixed into the seed of every run; stays at the site
LOG_FILE = "engine.log"
AUDIT_FILE = "audit.jsonl"  # what left the site and what came in; never pruned
USED_FILE = "used-runs"  # ids of runs whose records were removed
REVOKED_FILE = "revoked.pem"  # in a kit, beside its certificate: certificates that do not count


def state_of(settings: Path) -> Path:
    """Return the folder of a party's records, beside its TOML file."""
    return settings.parent / "state"
