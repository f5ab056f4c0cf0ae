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

    if "unfiltered" in planned():  # so that a second line of defence is tested
        from conovel.federation import apps

        apps.refuse_unencrypted = lambda cell, refuse: None
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
                if plan["do"] == "pause":
                    time.sleep(5)
                if plan["do"] == "garbage":
                    send_garbage()
                if plan["do"] == "lie":
                    claim_everything(self)
                if plan["do"] == "ask":
                    send_model(bytes.fromhex(plan["model"]))
        return honest(self, message, peer)

    return take


def send_garbage():
    """Send noise instead of the next message."""
    from conovel.federation import calls

    honest = calls.Delivery._send

    def send(self, receiver, messages):
        return honest(self, receiver, [b"\x00noise" * 9 for _ in messages])

    calls.Delivery._send = send


def send_model(blob):
    """Send a model of one's choice to every peer."""
    from conovel.site.site import Site

    honest = Site.models
    Site.models = lambda self, *more: dict.fromkeys(honest(self, *more), blob)


def claim_everything(agent):
    """Count every own row as if it had the smallest rank."""
    import numpy as np

    from conovel.stats.stepup import RankHistogram

    side = getattr(agent.deciding, "counted", agent.deciding)  # behind commitments, or not
    own = side.counts
    side.counts = RankHistogram(np.ones(own.size, dtype=int), own.n_calibration)


def sabotage_operator(plan):
    """Submit something else than the command line would: terms again, code, a foreign class."""
    from conovel.federation import session, terms

    if "again" in plan:  # the nonce, the time and the id of an earlier run
        terms.Terms._name_the_run = lambda self: self.__dict__.update(plan["again"])
    honest = session.write_job

    def write_job(job, terms, signed):
        honest(job, terms, signed)
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
    from conovel.federation import certificates

    certificates.check_certificate = lambda kit, name=None: ""


def tap_relay():
    """Write down all that reaches the coordinator's processes, after TLS has been taken off."""
    from nvflare.fuel.f3.sfm.conn_manager import ConnManager

    honest = ConnManager.process_frame_task

    def process(self, sfm_conn, frame):
        with (Path(FOLDER) / f"tap-{os.getpid()}").open("ab") as file:
            file.write(bytes(frame))
        return honest(self, sfm_conn, frame)

    ConnManager.process_frame_task = process


def sabotage_relay():
    """Replace a model on its way from south to north by another one, without encryption."""
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell

    honest = CoreCell._forward

    def forward(self, endpoint, origin, destination, msg_type, message):
        plan = planned().get("relay")
        way = origin.partition(".")[0], destination.partition(".")[0]
        if plan and way == ("south", "north"):
            replace_call(message, bytes.fromhex(plan["model"]))
        return honest(self, endpoint, origin, destination, msg_type, message)

    CoreCell._forward = forward


def replace_call(message, model):
    from nvflare.collab.runtime.defs import MSG_CHANNEL, CallHeaderKey
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
    from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
    from nvflare.fuel.utils import fobs

    from conovel.protocol.messages import encode
    from conovel.spec.bodies import Message, Model

    if message.get_header(StreamHeaderKey.CHANNEL) != MSG_CHANNEL:
        return
    state = Path(os.environ["CONOVEL_SETTINGS"]).parent / "state"
    run = max(state.glob("*.json"), key=lambda path: path.stat().st_mtime).stem
    forged = encode(Message(bytes.fromhex(run), "south", "north", 0, Model(model)))
    message.payload = fobs.dumps(
        {
            "caller": "south",
            "target_name": message.get_header(CallHeaderKey.TARGET_NAME),
            "method_name": "take",
            "args": [],
            "kwargs": {"data": forged},
        }
    )
    message.set_header(StreamHeaderKey.SIZE, len(message.payload))
    message.set_header(MessageHeaderKey.SECURE, False)
    message.remove_header(MessageHeaderKey.ENCRYPTED)
    (Path(FOLDER) / "reached").touch()


if FOLDER and "client.worker_process" in WORDS:
    sabotage_site()
if FOLDER and ("server_train" in WORDS or "runner_process" in WORDS):
    tap_relay()
    sabotage_relay()
if FOLDER and " run --federation" in WORDS and "operator" in planned():
    sabotage_operator(planned()["operator"])
if FOLDER and " agent " in WORDS and planned().get("agent") == "unchecked":
    sabotage_agent()
