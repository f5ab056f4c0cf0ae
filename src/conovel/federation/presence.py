"""Files by which a party's own process of NVFlare informs its supervisor.

They say that the coordinator has accepted a site, how many parties are connected, and which jobs
ended before a run began.

It is made in NVFlare's own process and in that of every run, and ties both to their parents.
This is not in :mod:`conovel.federation.apps`, because it must not load all that a run needs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.widgets.widget import Widget

from conovel.errors import FederationError
from conovel.federation.processes import (
    ENVIRONMENT,
    JOINED_FILE,
    LOG_FILE,
    PEERS_FILE,
    end_with_parent,
    state_of,
)

# At the coordinator, and at a site. A heartbeat comes every 30 seconds.
HEARTBEATS = frozenset(
    {
        EventType.CLIENT_REGISTER_PROCESSED,
        EventType.CLIENT_HEARTBEAT_PROCESSED,
        EventType.CLIENT_QUIT,
        EventType.SYSTEM_START,
        EventType.AFTER_CLIENT_HEARTBEAT,
    }
)


class Presence(Widget):  # type: ignore[misc]
    """Writes the files; it ends its process when the supervisor ends."""

    def __init__(self) -> None:
        super().__init__()
        end_with_parent()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Act on an event of NVFlare."""
        state = state_of(Path(os.environ[ENVIRONMENT]))
        if event_type == EventType.SYSTEM_START:
            (state / JOINED_FILE).touch()
        elif event_type == EventType.JOB_COMPLETED:
            from conovel.federation.run_records import RunRecords  # noqa: PLC0415  (loads pyarrow)

            records, job = RunRecords(state), str(fl_ctx.get_prop(FLContextKey.CURRENT_JOB_ID))
            # When one job ends while another begins, NVFlare's event may name the other one.
            is_running = job in getattr(fl_ctx.get_engine(), "run_processes", ())
            if not is_running and not records.knows(job):
                why = f"its job ended before it began (see {state / LOG_FILE})"
                records.refuse(job, why, job, **FederationError.named())
        if event_type in HEARTBEATS:
            (state / PEERS_FILE).write_text(f"{_n_connected(fl_ctx.get_engine())}\n")


def _n_connected(engine: Any) -> int:
    """Return how many sites are connected here; at a site, whether the coordinator is."""
    if hasattr(engine, "get_clients"):
        return len(engine.get_clients())
    cell = engine.get_cell()
    return int(cell is not None and cell.core_cell.is_cell_connected(FQCN.ROOT_SERVER))
