"""The server of the page: one process, one address of this machine, nothing logged."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

from conovel.errors import FileError, InputError, MissingExtraError

_MOST_AT_ONCE = 40  # requests


def require_desk() -> None:
    """Say what to install, if it is not."""
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "desk")


def as_address(text: str) -> tuple[str, str]:
    """Read an address of this machine; return it, and a warning if others can reach it.

    Examples
    --------
    >>> as_address("127.0.0.1")
    ('127.0.0.1', '')
    """
    try:
        address = ip_address(text)
    except ValueError:
        raise InputError(
            f"--address {text!r} is no IP address, such as 127.0.0.1; leave it out and reach the"
            " page from another machine by ssh -L"
        ) from None
    if address.is_unspecified:
        raise InputError(
            f"--address {text} would listen everywhere: name one address of this machine"
        )
    if address.is_loopback:
        return str(address), ""
    return str(address), (
        f"other machines can reach {address}, and the page has no encryption: who sees the traffic"
        " sees flagged rows and can agree to runs. Leave --address out and use ssh -L"
    )


def serve(settings: Path, address: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve the page of a site until Ctrl-C; `tell` prints a line."""
    require_desk()
    import uvicorn  # noqa: PLC0415  (an extra)

    from conovel.desk.app import make_app  # noqa: PLC0415  (an extra)
    from conovel.desk.guard import LOOPBACK, Keys  # noqa: PLC0415
    from conovel.desk.site_view import SiteView  # noqa: PLC0415

    host, warning = as_address(address)
    site, keys = SiteView(settings), Keys()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise FileError(
            f"nothing can be served on {host} port {port} ({error.strerror}): choose another"
            " --port"
        ) from None
    with listening:
        port = listening.getsockname()[1]
        if warning:
            tell(f"warning: {warning}")
        named = f"[{host}]" if ":" in host else host
        tell(f"the page of {site.file.name}: http://{named}:{port}/open/{keys.token}")
        tell("Open it in a browser of this machine. Keep the address to yourself. Ctrl-C ends it.")
        config = uvicorn.Config(
            make_app(site, keys, LOOPBACK | {host}),
            access_log=False,  # addresses hold the token
            log_level="error",
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_MOST_AT_ONCE,
            timeout_graceful_shutdown=3,
        )
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])
