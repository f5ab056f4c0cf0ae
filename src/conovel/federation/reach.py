"""Why a party does not come through to the coordinator, in our own words.

NVFlare and gRPC report every cause with the same words, or with lines of their own. So after a
failure the steps of a connection are taken once more: the name, the port, and TLS both ways.
"""

from __future__ import annotations

import logging
import socket
import ssl
from contextlib import suppress
from pathlib import Path

from conovel.errors import FederationError
from conovel.spec.records import read_json

PATIENCE_SECONDS = 5.0  # for each step of a connection
_log = logging.getLogger("conovel.federation")
# What is wrong with its certificate, by the numbers of OpenSSL.
_WRONG = {
    10: "its certificate has expired: renew the kit of the coordinator",
    62: (_NAME := "its certificate is for another name: use the name that was given as --host"),
    64: _NAME,  # for an address
}
_FOREIGN = (
    "its certificate is of another authority: this kit is of another federation, or a proxy"
    " decrypts TLS"
)
# What NVFlare says, by a part of it or by the class of its error: the first that fits.
_IN_OUR_WORDS = {
    "BYOC": "the job brings code, and no party takes code",
    "AuthenticationError": "it does not know this operator: take the kit of an operator",
    "AuthorizationError": "this operator may not do that",
    "NoConnection": "it does not answer any more",
    "Session": "it has closed the connection",
    "NoReply": "it did not answer in time",
    "no reply": "it did not answer in time",
    "CAN_NOT_SCHEDULE": "a site was not there, or had no room for a process",
    "ABORTED": "it was stopped before it began",
    "ABANDONED": "the coordinator was started again before it began",
}


def in_our_words(raw: str, otherwise: str) -> str:
    """Return what a text of NVFlare means; the text itself goes to the log file only."""
    _log.info("NVFlare: %s", raw)
    return next((words for part, words in _IN_OUR_WORDS.items() if part in raw), otherwise)


def address_of(kit: Path) -> tuple[str, int]:
    """Return the host and the port at which the kit of a site or an operator looks."""
    try:
        path = kit / "startup" / "fed_admin.json"
        if path.exists():
            admin = read_json(path.read_bytes(), str(path))["admin"]
            return str(admin["host"]), int(admin["port"])
        path = path.with_name("fed_client.json")
        config = read_json(path.read_bytes(), str(path))
        host, _, port = str(config["servers"][0]["service"]["target"]).rpartition(":")
        return host, int(port)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FederationError(f"{kit} is not the kit of a site or an operator: {error}") from None


def obstacle(kit: Path) -> str:
    """Return what is in the way between a kit and its coordinator; empty if nothing is."""
    host, port = address_of(kit)
    startup, why = kit / "startup", ""
    context = ssl.create_default_context(cafile=startup / "rootCA.pem")
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    context.set_alpn_protocols(["h2"])  # as gRPC
    try:
        with (
            socket.create_connection((host, port), PATIENCE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
            suppress(TimeoutError),
        ):
            secure.recv(1)  # in TLS 1.3 a server refuses a certificate after the handshake
    except socket.gaierror:
        why = f"this machine does not know the name {host}"
    except ConnectionRefusedError:
        why = f"nothing listens on port {port} of {host}: is `conovel coordinate` running there?"
    except ssl.SSLCertVerificationError as error:
        why = _WRONG.get(error.verify_code, _FOREIGN)
    except (ssl.SSLError, ConnectionResetError):
        why = "it refuses the certificate of this kit: is this kit of its federation?"
    except OSError:
        why = f"port {port} of {host} does not answer: does a firewall stop this connection?"
    return why
