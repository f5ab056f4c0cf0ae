"""A site's sign of life: a file, once the coordinator has accepted it.

Runs in NVFlare's own process of a site, apart from :mod:`conovel.federation.engine` because
it should not load what a run needs.
"""

from __future__ import annotations

import os
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.widgets.widget import Widget

from conovel.federation.places import ENVIRONMENT, JOINED_FILE, state_of


class Presence(Widget):  # type: ignore[misc]
    """Leaves a file for whoever supervises the site."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Act on the engine's events."""
        if event_type == EventType.SYSTEM_START:
            folder = state_of(Path(os.environ[ENVIRONMENT]))
            (folder / JOINED_FILE).write_text(str(os.getpid()))
