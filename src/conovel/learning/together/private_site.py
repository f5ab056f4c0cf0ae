"""A site's work while agents learn one model together with differential privacy."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from conovel.errors import OutcomeMismatchError
from conovel.learning.base import Party
from conovel.learning.together.private import PrivateLearner, PrivateRows, honest_of
from conovel.models.wire import schema_digest
from conovel.site.sent.compact import public_units
from conovel.spec.bodies import COORDINATOR
from conovel.stats.cells import CellHistogram

_NUMBER = np.dtype("<i8")
_EVERYBODY = "all agents"  # whose model it is


def sharing_noise(party: Party) -> int:
    """Return how many agents share the noise: without masks none, each has all of it."""
    return honest_of(len(party.agents)) if party.spec.masks else 1


class PrivateSiteLearner:
    """What a site remembers from round to round; see :class:`PrivateLearner`."""

    learner: PrivateLearner
    rows: PrivateRows

    def __init__(self, party: Party) -> None:
        self._party = party

    def begin(self, site: Any, weight: Fraction) -> bytes:
        """Return the numbers of the first round; `weight` is that of the site's group."""
        site.weight, self._noise = weight, site.work.noise
        block, spec = site.own_block, self._party.spec
        n_mixture = min(block.n_mixture, site.work.max_train_rows)
        training = block.training
        self.rows = PrivateRows(training.null_train, training.mixture.rows, n_mixture)
        assert spec.privacy is not None  # noqa: S101  (what this class is for)
        units = public_units(spec.schema, len(site.columns))
        self.learner = PrivateLearner(units, spec.privacy, sharing_noise(self._party))
        return self._answer()

    def go_on(self, totals: bytes) -> bytes | None:
        """Take the totals; return the numbers of the next round, None if there is none."""
        try:
            self.learner.take(np.frombuffer(totals, _NUMBER).astype(np.int64))
        except ValueError as error:
            reason = f"the coordinator is wrong: its totals are of no rows ({error})"
            raise OutcomeMismatchError(reason, COORDINATOR) from None
        return None if self.learner.is_done else self._answer()

    def ranks(self, site: Any) -> CellHistogram:
        """Combine the model of all agents with the own score; count the rows in its cells.

        Proof: Proposition (docs/theory.md#prop-private-sums).
        """
        blob = self.learner.model(schema_digest(site.columns, 4))
        site.ranks({_EVERYBODY: blob})
        counted: CellHistogram = site.count_cells()
        return counted

    def _answer(self) -> bytes:
        return self.learner.answer(self.rows, self._noise).astype(_NUMBER).tobytes()
