"""Files by which a party's own process of NVFlare informs its supervisor.

This is not in :mod:`conovel.drivers.nvflare.apps`, because it must not load all that a run needs.
"""

from __future__ import annotations

import os
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.widgets.widget import Widget

from conovel.drivers.nvflare.paths import ENVIRONMENT, JOINED_FILE, LOG_FILE, state_of


class Presence(Widget):  # type: ignore[misc]
    """Notes that the coordinator has accepted a site, and jobs that ended before a run began."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Act on an event of NVFlare."""
        state = state_of(Path(os.environ[ENVIRONMENT]))
        if event_type == EventType.SYSTEM_START:
            (state / JOINED_FILE).touch()
        elif event_type == EventType.JOB_COMPLETED:
            from conovel.drivers.nvflare.run_records import RunRecords  # noqa: PLC0415  (loads pyarrow)

            records, job = RunRecords(state), str(fl_ctx.get_prop(FLContextKey.CURRENT_JOB_ID))
            if not records.knows(job):
                why = f"its job ended before it began (see {state / LOG_FILE})"
                records.refuse(job, why, job)
