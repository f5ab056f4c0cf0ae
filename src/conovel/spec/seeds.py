"""Where the seed of every agent comes from: the run's, and at a site a secret of its own.

All that is random at an agent follows from its one seed: which known normals train, how rows
are cut into blocks, the scorer, and the model that imitates it. Whoever submits a run chooses
the seed of the run. A site mixes a secret into it, so that nobody else can choose, or know,
which of its rows train.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from conovel.spec.run_spec import RunSpec
from conovel.stats.levels import SEED_BITS, RandomState, as_seed, as_whole
from conovel.stats.repeats import run_level


def agent_seeds(seed: int, n_agents: int) -> list[int]:
    """Return a seed for every agent, in the order of their names.

    Examples
    --------
    >>> agent_seeds(0, 2)
    [2968811710, 3677149159]
    """
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(n_agents)]


def repeat_seeds(seed: int, repeats: int) -> list[int]:
    """Return the seed of each of B runs that are averaged; the seed itself for B = 1.

    Run b has the first number of numpy's ``SeedSequence(seed, spawn_key=(b,))``, b from 0. So the
    seeds of 5 runs are the first 5 of 20, and none of them is a seed of an agent of the same seed.
    """
    if repeats == 1:
        return [seed]
    runs = [np.random.SeedSequence(seed, spawn_key=(b,)) for b in range(repeats)]
    return [int(run.generate_state(1)[0]) for run in runs]


def repeated_specs(spec: RunSpec) -> list[RunSpec]:
    """Return the settings of each run that is averaged: its own seed, and the level β.

    Each run gets an equal part of ε and of δ.

    Each is the whole record of a run of its own, which can be made again without the others.
    """
    if spec.repeats == 1:
        return [spec]
    level = run_level(spec.level)
    privacy = None if spec.privacy is None else spec.privacy.divided(spec.repeats)
    return [
        replace(spec, seed=seed, level=level, repeats=1, privacy=privacy)
        for seed in repeat_seeds(spec.seed, spec.repeats)
    ]


def detector_seeds(random_state: RandomState) -> tuple[int, int]:
    """Return the seeds of the split and of the scorers at one site; see :func:`as_seed`."""
    split, scorer = np.random.SeedSequence(as_seed(random_state)).generate_state(2)
    return int(split), int(scorer)


def site_seed(secret: bytes, seed: int, agent: str, run_id: str) -> int:
    """Return the seed of a site that mixes its secret and the run's id into the seed of a run.

    Every run has another id. So two runs never divide the rows alike, and nobody can compare the
    counts of two runs that differ in one model only.
    """
    digest = hmac.digest(secret, canonical_json([agent, run_id, seed]), hashlib.sha256)
    return int.from_bytes(digest[: SEED_BITS // 8], "big")


def run_id_of(spec: RunSpec, names: Iterable[str]) -> bytes:
    """Return the 16 bytes that name a run in one process: a digest of its settings and agents.

    A run can so be repeated exactly, and ``conovel verify`` sees when its settings were changed.
    """
    text = json.dumps([spec.to_text(), sorted(names)])
    return hashlib.sha256(text.encode()).digest()[:16]


def nonce_of(run_id: bytes, agent: str) -> bytes:
    """Return the nonce of an agent of a network in one process, where nobody hides anything.

    Between organisations each site draws its own.
    """
    return hashlib.sha256(b"conovel nonce\n" + run_id + agent.encode()).digest()


def as_agent_seed(seed: int) -> int:
    """Check a seed that was given to an agent."""
    return as_whole(seed, "seed", most=2**SEED_BITS - 1)


def run_id_of_terms(terms: Mapping[str, Any]) -> str:
    """Return the id of a run between organisations: it follows from the terms that it has.

    They are JSON types, with a random nonce; a ``run_id`` among them is left out.
    """
    content = {name: value for name, value in terms.items() if name != "run_id"}
    return hashlib.sha256(canonical_json(content)).hexdigest()[:32]


def canonical_json(plain: Any) -> bytes:
    """Return JSON types as bytes, the same for equal values: sorted keys, no spaces, ASCII."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")
