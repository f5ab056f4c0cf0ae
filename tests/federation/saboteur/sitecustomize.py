"""Misbehaviour for fault tests: what a site does wrong is written in a file by the test.

Python imports this module in every process whose path it is on. The product knows nothing of it.
"""

import json
import os
import sys
import time
from pathlib import Path

FOLDER = os.environ.get("CONOVEL_SABOTAGE", "")
WORDS = " ".join(sys.orig_argv)


def sabotage_site():
    """Change what a site does when a message of a certain kind arrives."""
    from conovel.messages import decode
    from conovel.participant import Participant

    honest = Participant.receive
    seen = []

    def receive(self, data, peer=""):
        try:
            plan = json.loads((Path(FOLDER) / "plan.json").read_text())
        except OSError:
            plan = {}
        if plan.get("site") == self.name:
            seen.append(decode(data).body.kind.name)
            if seen.count(plan["when"]) >= plan.get("nth", 1) and seen[-1] == plan["when"]:
                (Path(FOLDER) / "reached").touch()
                if plan["do"] == "wait":
                    time.sleep(3600)
                if plan["do"] == "garbage":
                    send_garbage()
        return honest(self, data, peer)

    Participant.receive = receive


def send_garbage():
    """Send noise instead of the next message."""
    from conovel.federation import engine

    honest = engine._Post._send

    def send(self, receiver, letters):
        return honest(self, receiver, [b"\x00noise" * 9 for _ in letters])

    engine._Post._send = send


def tap_relay():
    """Write down all that reaches the coordinator's processes, after TLS has been taken off."""
    from nvflare.fuel.f3.sfm.conn_manager import ConnManager

    honest = ConnManager.process_frame_task

    def process(self, sfm_conn, frame):
        with (Path(FOLDER) / f"tap-{os.getpid()}").open("ab") as file:
            file.write(bytes(frame))
        return honest(self, sfm_conn, frame)

    ConnManager.process_frame_task = process


if FOLDER and "client.worker_process" in WORDS:
    sabotage_site()
if FOLDER and ("server_train" in WORDS or "runner_process" in WORDS):
    tap_relay()
