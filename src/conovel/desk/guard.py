"""Who may see a page: checks before any page is made, and what a browser may do with it.

A page is for one person at one machine. Its address holds a random token. The first visit changes
it for a cookie that belongs to a random folder of addresses, so that no other server of this
machine receives it. The name in the address bar must be one of this server, so that no page of a
foreign name that leads to this machine is answered. A form counts if it comes from our own page.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from conovel.errors import InputError

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "conovel_desk"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MAX_BODY = 256 * 2**10  # bytes of a form
MAX_FIELDS = 1000
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(:[0-9]{1,5})?")
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
# With no-referrer a browser would not say from which page a form comes.
_HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


@dataclass(frozen=True)
class Keys:
    """One token, and what follows from it; none of them tells another."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def _key(self, purpose: str) -> str:
        return hmac.digest(self.token.encode(), purpose.encode(), sha256).hex()

    @property
    def folder(self) -> str:
        """The first part of the address of every page."""
        return self._key("folder")[:24]

    @property
    def cookie(self) -> str:
        """What a browser holds after the first visit."""
        return self._key("cookie")

    @property
    def form(self) -> str:
        """What every form of ours holds."""
        return self._key("form")


class Guard:
    """Answers what may not pass, and lets the rest through to the pages.

    `refused` makes the page of a refusal of a status and a reason.
    """

    def __init__(
        self,
        app: Application,
        keys: Keys,
        refused: Callable[[int, str], Application],
        hosts: frozenset[str] = LOOPBACK,
    ) -> None:
        self._app, self._keys, self._refused, self._hosts = app, keys, refused, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = _headers_of(scope)
        answer = self._objection(scope, headers)
        if answer is None and scope["method"] == "POST":
            body = await _body(receive)
            answer = self._objection_to_form(headers, body)
            if answer is None and body is not None:
                scope["conovel_form"] = read_form(body)
        await (answer or self._app)(scope, receive, _with_headers(send))

    def _objection(self, scope: Scope, headers: dict[str, list[str]]) -> Application | None:
        """Return what answers instead of a page; None if the page may."""
        host = headers.get("host", [])
        if len(host) != 1 or host_name(host[0]) not in self._hosts:
            return self._refused(403, "This address has a name that is not of this server.")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return self._refused(405, "This page answers GET and POST only.")
        path, is_get = str(scope["path"]), scope["method"] == "GET"
        if is_get and path.startswith("/open/") and same(path[6:], self._keys.token):
            return self._enter
        first = path.split("/", 2)[1] if path.startswith("/") else ""
        is_ours = same(first, self._keys.folder)
        if not is_ours or not self._has_cookie(headers):
            return self._refused(
                403,
                "Open the address that `conovel desk` printed, with the word behind open/. Copy it"
                " into the address bar: a browser may not come here by a link of another page.",
            )
        return None

    def _has_cookie(self, headers: dict[str, list[str]]) -> bool:
        for line in headers.get("cookie", []):
            try:
                cookies: SimpleCookie = SimpleCookie(line)
            except CookieError:
                continue
            if COOKIE in cookies and same(cookies[COOKIE].value, self._keys.cookie):
                return True
        return False

    def _objection_to_form(
        self, headers: dict[str, list[str]], body: bytes | None
    ) -> Application | None:
        """Return what answers a form that is not ours, or is too large."""
        if body is None:
            return self._refused(413, "The form is too large.")
        if headers.get("origin") != [f"http://{headers['host'][0]}"]:
            return self._refused(403, "The form does not come from a page of this server.")
        kind = headers.get("content-type", [""])[0].partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            return self._refused(415, "The form has a type that is not read here.")
        try:
            form = read_form(body)
        except InputError as error:
            return self._refused(400, str(error))
        if not same(form.get("form", ""), self._keys.form):
            return self._refused(403, "The form is of another time: go back and reload its page.")
        return None

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Change the token for a cookie, and lead to an address without it."""
        folder = f"/{self._keys.folder}/"
        cookie = f"{COOKIE}={self._keys.cookie}; Path={folder}; HttpOnly; SameSite=Strict"
        headers = [(b"location", folder.encode()), (b"set-cookie", cookie.encode())]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def same(one: str, other: str) -> bool:
    """Compare two texts in a time that says nothing about the second."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


def host_name(header: str) -> str:
    """Return the name in a Host header; empty if it is none.

    Examples
    --------
    >>> host_name("127.0.0.1:8765"), host_name("[::1]:8765"), host_name("a@b")
    ('127.0.0.1', '::1', '')
    """
    match = _HOST.fullmatch(header)
    return match[1].strip("[]").lower() if match else ""


def read_form(body: bytes) -> dict[str, str]:
    """Read the fields of a form; of several with one name, the last."""
    try:
        text = body.decode("ascii")
        return dict(parse_qsl(text, True, True, "utf-8", "strict", MAX_FIELDS))
    except ValueError:  # also of UnicodeDecodeError
        raise InputError("The form cannot be read.") from None


def _headers_of(scope: Scope) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


async def _body(receive: Receive) -> bytes | None:
    """Read what was sent; None as soon as it is too much."""
    data, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        data += message.get("body", b"")
        if len(data) > MAX_BODY:
            return None
        more = message.get("more_body", False)
    return data


def _with_headers(send: Send) -> Send:
    """Add what a browser may do with an answer, unless the answer says it."""

    async def send_with(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message.get("headers", [])}
            more = [(name, value) for name, value in _HEADERS.items() if name not in own]
            message["headers"] = [*message.get("headers", []), *more]
        await send(message)

    return send_with
