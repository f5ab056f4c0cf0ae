"""Agents and a coordinator joined by lists of bytes: no sockets, no clock, any order."""

from __future__ import annotations

import hashlib
import random
import warnings
from collections import defaultdict, deque
from fractions import Fraction
from itertools import takewhile

import numpy as np
from hypothesis import strategies as st

from conovel.errors import GuaranteeWarning, ResolutionWarning
from conovel.protocol.agent import Agent
from conovel.protocol.coordinator import Coordinator
from conovel.protocol.messages import encode
from conovel.protocol.states import Send, messages_of
from conovel.protocol.transcript import Transcript
from conovel.rows.tables import Rows
from conovel.runs.network_run import perform
from conovel.scorers.base import Mixture, TrainingSet
from conovel.site.blocks import Ranked
from conovel.spec.bodies import COORDINATOR, Message, Model
from conovel.spec.facts import Facts
from conovel.spec.regimes import as_regime
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import N_CELLS, CellHistogram
from conovel.stats.ranks import as_block
from conovel.stats.stepup import RankHistogram
from support.paths import DOCS

RUN_ID = bytes(range(16))
SCHEMA = bytes(32)
LEVEL = Fraction(1, 5)
NAMES = ("agent000", "agent001", "agent002")
LOW = ([1, 1, 2, 5, 9], 19)
HIGH = ([1, 3, 12, 30], 39)
THIRD = ([2, 7], 9)


def quietly(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResolutionWarning)
        warnings.simplefilter("ignore", GuaranteeWarning)
        return function(*args, **kwargs)


def forge(sender, receiver, body, round_=0, run_id=RUN_ID):
    return encode(Message(run_id, sender, receiver, round_, body))


def nonce_of(name):
    return hashlib.sha256(name.encode()).digest()


class FakeSite:
    """A site whose ranks are given; its models only say who made them for whom."""

    def __init__(self, name, ranks, n_calibration, *, n_test=None, schema=SCHEMA, regime="full"):
        self.name = name
        self.regime = as_regime(regime)
        self.given = np.asarray(ranks, dtype=np.int64)
        self.n_calibration = n_calibration
        n_test = self.given.size if n_test is None else n_test
        self.facts = Facts(n_calibration + 10, n_test, 3, schema)
        self.received = None
        self.known_rows = None

    def models(self, index, names, weight):
        assert names[index] == self.name
        assert list(names) == sorted(names)
        return {peer: f"{self.name} for {peer}".encode() for peer in names if peer != self.name}

    def ranks(self, models):
        assert models == {peer: f"{peer} for {self.name}".encode() for peer in models}
        self.received = list(models)
        return RankHistogram(*as_block(self.given, self.n_calibration))

    def count_cells(self):
        return cells_of(self.given, self.n_calibration)

    @property
    def own_block(self):
        """Four rows to learn together from, and scores that lie in the cells of the ranks."""
        return FakeBlock(self)

    def least_rows(self, training):
        """Cells may hold single rows."""
        return 1

    def explain_by(self, model, null_train):
        """Nothing is explained."""

    @property
    def null(self):
        """Ten rows that train, then the calibration rows."""
        return plain_rows(self.facts.n_null, len(self.name))

    @property
    def test(self):
        return plain_rows(self.given.size, 7.0)

    def split(self, n_null):
        return np.arange(10), np.arange(10, n_null)

    def block_of(self, train, calibration, tests):
        return FakeBlock(self)


def plain_rows(n, start):
    """Some rows of three columns, no two alike."""
    return Rows(np.arange(3.0 * n).reshape(n, 3) % 17 + start)


class FakeBlock:
    """The rows of a fake site where agents learn together."""

    def __init__(self, site):
        self.site = site
        self.null_train = np.arange(6.0).reshape(2, 3) + len(site.name)
        self.training = TrainingSet(self.null_train, Mixture.of(self.null_train + 1))

    def rank(self, model):
        site = self.site
        places = [np.arange(1, site.n_calibration + 1), site.given - 1]
        # So few rows give few cells. With these edges the scores are in the middle of cells.
        model.learner.edges = np.arange(1.0, N_CELLS)
        scores = [N_CELLS - 0.5 - np.minimum(p, N_CELLS - 1) for p in places]
        return Ranked.of(np.ones(site.given.size, dtype=bool), *scores, site.given)


def cells_of(ranks, n_calibration):
    """Put calibration rows one below the other into cells, and test rows where their ranks are."""
    places = [np.arange(1, n_calibration + 1), np.asarray(ranks, dtype=np.int64) - 1]
    return CellHistogram.of(*(N_CELLS - 1 - np.minimum(p, N_CELLS - 1) for p in places), N_CELLS)


def sites_for(blocks, regime="full"):
    """One site per (ranks, n_calibration); for `split` the given ranks are its own block."""
    names = [f"agent{i:03d}" for i in range(len(blocks))]
    k = len(blocks)
    sites = {}
    for i, (name, (ranks, size)) in enumerate(zip(names, blocks, strict=True)):
        n_test = len(ranks)
        if as_regime(regime).n_blocks(2) > 1:  # the largest n with a block of that size at i
            n_test = next(
                n
                for n in range(len(ranks) * k + k, -1, -1)
                if as_regime(regime).n_tested(n, i, k) == len(ranks)
            )
        sites[name] = FakeSite(name, ranks, size, n_test=n_test, regime=regime)
    return sites


class Link:
    """Delivers messages in order on every channel, and in any order between channels."""

    def __init__(
        self,
        sites,
        *,
        regime,
        level,
        pi0=None,
        on_dropout="abort",
        seed=None,
        run_id=RUN_ID,
        slow_sites=False,
        **counting,
    ):
        spec = RunSpec.of(regime=regime, level=level, pi0=pi0, on_dropout=on_dropout, **counting)
        self.coordinator = Coordinator(list(sites), spec=spec, run_id=run_id)
        self.agents = {
            name: Agent(
                name,
                spec=spec,
                run_id=run_id,
                software="1.0",
                wire_version=1,
                nonce=nonce_of(name),
                secret=nonce_of(f"secret of {name}"),
            )
            for name in sites
        }
        self.sites = sites
        self.slow_sites = slow_sites  # they work only when no message is under way
        self.work = deque()  # (agent, event)
        self.random = None if seed is None else random.Random(seed)
        self.channels = defaultdict(deque)
        self.queue = deque()  # channels in the order of their messages
        self.delivered = []  # (sender, receiver, data)
        self.dead = set()
        self.transcript = Transcript()
        for name, agent in self.agents.items():
            self.post(name, agent.join(sites[name].facts))

    @property
    def machines(self):
        return {COORDINATOR: self.coordinator, **self.agents}

    def post(self, sender, outbox):
        for sent in outbox:
            price = 100.5 if isinstance(sent.message.body, Model) else None
            self.transcript.note(sent.message, len(sent.data), price)
            self.channels[sender, sent.receiver].append(sent.data)
            self.queue.append((sender, sent.receiver))

    def step(self):
        """Deliver one message, or let a slow site work; False when there is nothing to do."""
        if not self.queue:
            return self.work_once()
        if self.random is not None:
            self.queue.rotate(self.random.randrange(len(self.queue)))
        sender, receiver = self.queue.popleft()
        self.deliver(sender, receiver, self.channels[sender, receiver].popleft())
        return True

    def deliver(self, sender, receiver, data):
        if receiver not in self.dead:
            self.delivered.append((sender, receiver, data))
            machine = self.machines[receiver]
            events = machine.receive(data, sender)
            if self.slow_sites:
                self.work.extend((receiver, e) for e in events if not isinstance(e, Send))
                events = messages_of(events)
            site = self.sites.get(receiver)
            self.post(receiver, events if site is None else perform(machine, site, events))

    def work_once(self):
        """Let one site do what it was asked for; False when no site was."""
        if not self.work:
            return False
        name, event = self.work.popleft()
        if name not in self.dead:
            self.post(name, perform(self.agents[name], self.sites[name], [event]))
        return True

    def kill(self, name):
        """An agent is gone, and the driver notices; what it had sent may still arrive."""
        self.dead.add(name)
        self.post(COORDINATOR, self.coordinator.drop(name))

    def run(self):
        while self.step():
            pass
        return self

    def masks(self):
        """Which of the given ranks each agent rejects."""
        return {
            name: self.sites[name].given <= agent.limit
            for name, agent in self.agents.items()
            if name not in self.dead
        }


@st.composite
def block(draw):
    size = draw(st.integers(1, 60))
    small = st.integers(1, min(3, size + 1))  # many small ranks, so that something is rejected
    return draw(st.lists(small | st.integers(1, size + 1), max_size=25)), size


def table_of(page, *header):
    """The rows of the first table with this header in a page of the documentation."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    start = lines.index("| " + " | ".join(header) + " |")
    rows = takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
