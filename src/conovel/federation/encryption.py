"""Refuses calls between sites that NVFlare delivers without encryption.

A call that a site sends with ``secure=True`` has two marks in its header: that it must be secret,
and that it is encrypted. With both, NVFlare decrypts it with the receiver's key and checks the
signature of the sender. Without either, NVFlare delivers the bytes as they are, and after that
the marks no longer show which was the case. So the marks are read before, for every piece of a
call. A relay can write any mark, but what it marks as encrypted must be signed by the sender.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nvflare.collab.runtime.defs import MSG_CHANNEL, MSG_TOPIC
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamHeaderKey,
)


def refuse_unencrypted(cell: Any, refuse: Callable[[str], None]) -> None:
    """Call `refuse` with the name of a site whose call came without encryption, and drop it.

    Parameters
    ----------
    cell : Cell
        NVFlare's end of the connections of this process.
    refuse : callable
    """

    def look(message: Message) -> Message | None:
        sender = unencrypted_sender(message.headers)
        if sender is None:
            return None
        refuse(sender)
        return Message()  # NVFlare drops a message for which a filter returns anything

    cell.core_cell.add_incoming_filter(STREAM_CHANNEL, STREAM_DATA_TOPIC, look)


def unencrypted_sender(headers: dict[str, Any]) -> str | None:
    """Return the site in whose name a call came without encryption; None if it may pass.

    Examples
    --------
    >>> headers = {StreamHeaderKey.CHANNEL: MSG_CHANNEL, StreamHeaderKey.TOPIC: MSG_TOPIC}
    >>> headers[MessageHeaderKey.ORIGIN] = "south.job"
    >>> unencrypted_sender(headers)
    'south'
    >>> unencrypted_sender(
    ...     headers | {MessageHeaderKey.SECURE: True, MessageHeaderKey.ENCRYPTED: True}
    ... )
    """
    call = headers.get(StreamHeaderKey.CHANNEL), headers.get(StreamHeaderKey.TOPIC)
    if call != (MSG_CHANNEL, MSG_TOPIC):
        return None
    marks = headers.get(MessageHeaderKey.SECURE), headers.get(MessageHeaderKey.ENCRYPTED)
    sender = str(headers.get(MessageHeaderKey.ORIGIN)).partition(".")[0]
    return None if sender == FQCN.ROOT_SERVER or all(mark is True for mark in marks) else sender
