"""The models that an agent has received, by sender and round, and those that it waits for."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class ModelBox:
    """Models of one agent's peers.

    Attributes
    ----------
    awaited : set of tuple
        Sender and round of the models that have not come.

    Examples
    --------
    >>> box = ModelBox()
    >>> box.wait_for(["north", "south"], [0])
    >>> box.add("north", 0, b"model")
    >>> sorted(box.awaited), box.of_round(0)
    ([('south', 0)], {'north': b'model'})
    """

    def __init__(self) -> None:
        self.awaited: set[tuple[str, int]] = set()
        self._blobs: dict[tuple[str, int], bytes] = {}

    @property
    def senders(self) -> set[str]:
        """Everybody a model has come from."""
        return {sender for sender, _ in self._blobs}

    def wait_for(self, senders: Collection[str], rounds: Iterable[int]) -> None:
        """Wait for a model of each sender in each round, unless it has come already."""
        due = {(sender, round_) for round_ in rounds for sender in senders}
        self.awaited = due - self._blobs.keys()

    def add(self, sender: str, round_: int, blob: bytes) -> None:
        """Take a model."""
        self._blobs[sender, round_] = blob
        self.awaited.discard((sender, round_))

    def give_up(self, sender: str) -> None:
        """Wait for a sender no longer."""
        self.awaited = {one for one in self.awaited if one[0] != sender}

    def has(self, sender: str) -> bool:
        """Tell whether any model has come from a sender."""
        return sender in self.senders

    def of_round(self, round_: int) -> dict[str, bytes]:
        """Return the models of a round by sender, sorted."""
        return {s: blob for (s, r), blob in sorted(self._blobs.items()) if r == round_}

    def clear(self) -> None:
        """Forget all models: their bytes are not needed any more."""
        self._blobs.clear()
