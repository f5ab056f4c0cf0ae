"""Misbehaviour for fault tests: what a party does wrong is written in a file by the test.

Python imports this module in every process whose path it is on. The product knows nothing of it.
"""

import json
import os
import sys
import time
from pathlib import Path

FOLDER = os.environ.get("CONOVEL_SABOTAGE", "")
WORDS = " ".join(sys.orig_argv)


def planned():
    try:
        return json.loads((Path(FOLDER) / "plan.json").read_text())
    except OSError:
        return {}


def sabotage_site():
    """Change what a site does when a message of a certain kind arrives."""
    from conovel.protocol.agent import Agent
    from conovel.protocol.listing import ListingAgent

    seen = []
    for machine in (Agent, ListingAgent):
        machine.take = sabotaged(machine.take, seen)


def sabotaged(honest, seen):

    def take(self, message, peer=""):
        plan = planned()
        if plan.get("site") == self.name:
            seen.append(message.body.kind.name)
            if seen.count(plan["when"]) >= plan.get("nth", 1) and seen[-1] == plan["when"]:
                (Path(FOLDER) / "reached").touch()
                if plan["do"] == "wait":
                    time.sleep(3600)
                if plan["do"] == "garbage":
                    send_garbage()
        return honest(self, message, peer)

    return take


def send_garbage():
    """Send noise instead of the next message."""
    from conovel.drivers.nvflare import apps

    honest = apps._Delivery._send

    def send(self, receiver, messages):
        return honest(self, receiver, [b"\x00noise" * 9 for _ in messages])

    apps._Delivery._send = send


def sabotage_operator(plan):
    """Submit something else than the command line would: an old id, code, a foreign class."""
    from conovel.drivers.nvflare import session, terms

    if "run_id" in plan:
        terms._run_id = lambda text: plan["run_id"]
    honest = session.write_job

    def write_job(job, terms):
        honest(job, terms)
        for name, text in plan.get("files", {}).items():
            (job / name).parent.mkdir(exist_ok=True)
            (job / name).write_text(text)
        for name, component in plan.get("components", {}).items():
            content = json.loads((job / name).read_text())
            content["components"].append(component)
            (job / name).write_text(json.dumps(content))

    session.write_job = write_job


def sabotage_agent():
    """Start a site without looking at its certificate."""
    from conovel.drivers.nvflare import supervise

    supervise.check_certificate = lambda kit, name=None: ""


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
if FOLDER and " run --federation" in WORDS and "operator" in planned():
    sabotage_operator(planned()["operator"])
if FOLDER and " agent " in WORDS and planned().get("agent") == "unchecked":
    sabotage_agent()
