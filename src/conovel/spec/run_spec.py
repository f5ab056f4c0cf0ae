"""What all agents of a run agree on: one frozen record, in one spelling.

A network in one process, a job between organisations, the hello of every agent and the
transcript hold the same :class:`RunSpec`.

The seeds of all agents follow from it, and all that is random at an agent from its one seed: which
known normals train, how rows are cut into blocks, the scorer, and the model that imitates it.
Whoever submits a run chooses the seed of the run. A site mixes a secret into it, so that nobody
else can choose, or know, which of its rows train.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np

from conovel.errors import InputError, PrivacyError
from conovel.spec.regimes import AUTO as AUTO_REGIME
from conovel.spec.regimes import Regime, as_regime, choose_regime
from conovel.spec.schema import Schema, SchemaDigest, differing_columns
from conovel.spec.settings import (
    AUTO,
    COMMITTED,
    COMPACT,
    ROUNDS,
    TO_COORDINATOR,
    Bits,
    Privacy,
    as_bits,
    as_composite,
    as_privacy,
    check_counting,
)
from conovel.stats.batches import NETWORK_SHARE
from conovel.stats.levels import (
    SEED_BITS,
    RandomState,
    as_level,
    as_liars,
    as_repeats,
    as_seed,
    as_whole,
)
from conovel.stats.null_proportion import NullProportion, as_estimator
from conovel.stats.repeats import Averaging, averaging, run_level
from conovel.stats.words import briefly

MAX_SEED = 2**128 - 1  # what numpy draws as fresh entropy fits
ON_DROPOUT = ("abort", "conservative")


@dataclass(frozen=True)
class RunSpec:
    """The settings of a run; values are checked and brought to one form when it is made.

    Names of regimes, floats and texts are read; :meth:`of` also reads the regime "auto".
    """

    regime: Regime  # who tests what, at which level
    level: Fraction = Fraction(1, 10)  # target false discovery rate over all agents
    composite: str = AUTO  # how an agent's own score and its peers' models go together
    bits: Bits = COMPACT  # how models are sent, see conovel.spec.settings
    pi0: NullProportion | None = None  # a text is such as "storey:1/2"
    seed: int = 0  # the seeds of the agents follow from it
    train_fraction: Fraction | None = None  # None lets each agent choose by its numbers
    # When an agent vanishes during the counts: abort the run, or count it as zero.
    on_dropout: str = "abort"
    # The number B of runs, from 1 to 100. Above 1, each run has a seed of its own and the level
    # β, and evidence averaged over the runs decides (`averaging`).
    repeats: int = 1
    liars: int = 0  # how many agents may lie about their counts
    counting: str = ROUNDS
    reveal_to: str = TO_COORDINATOR  # who sees the counts in committed counting
    schema: Schema | SchemaDigest | None = None  # None where all columns are plain numbers
    privacy: Privacy | None = None  # ε and δ of the models that each site sends
    masks: bool = False  # hide what each agent adds to a sum, where agents learn together
    strata: tuple[str, ...] = ()  # columns within whose values rows are compared

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "regime", as_regime(self.regime))
        put(self, "level", as_level(self.level))
        put(self, "composite", as_composite(self.composite))
        put(self, "bits", as_bits(self.bits))
        if self.pi0 is not None:
            put(self, "pi0", as_estimator(self.pi0))
        put(self, "seed", as_whole(self.seed, "seed", most=MAX_SEED))
        if self.train_fraction is not None:
            put(self, "train_fraction", as_level(self.train_fraction, "train_fraction"))
        if self.pi0 is not None:
            self._refuse("pi0")
        if not isinstance(self.on_dropout, str) or self.on_dropout not in ON_DROPOUT:
            raise InputError(
                f"on_dropout must be 'abort' or 'conservative', not {briefly(self.on_dropout)}"
            )
        if self.on_dropout != "abort":
            self._refuse("on_dropout")
        put(self, "repeats", as_repeats(self.repeats))
        put(self, "liars", as_liars(self.liars))
        if not isinstance(self.schema, Schema | SchemaDigest | None):
            raise InputError(f"schema must be a Schema, not {briefly(self.schema)}")
        if isinstance(self.schema, Schema):
            self.schema.require_small()
        put(self, "privacy", as_privacy(self.privacy))
        if self.privacy is not None:
            self._refuse("privacy", PrivacyError)
        if self.repeats > 1:
            self._check_repeats()
        check_counting(self)
        put(self, "strata", tuple(self.strata))
        self._check_strata()

    def _refuse(self, setting: str, error: type[InputError] = InputError, **words: Any) -> None:
        """Raise if the regime refuses a setting."""
        if reason := self.regime.refusal(setting):
            raise error(reason.format(**words) if words else reason)

    def _check_repeats(self) -> None:
        """Refuse what is not proven for evidence averaged over several runs."""
        self._refuse("repeats")
        if self.pi0 is not None and not self.pi0.proven_for_several:
            self._refuse("repeats of an unproven pi0", pi0=spell_pi0(self.pi0))
        if self.on_dropout != "abort":
            raise InputError(
                "repeats breaks a run off when an agent vanishes: leave on_dropout at 'abort'"
            )

    def _check_strata(self) -> None:
        """Refuse what is not proven or not built for strata."""
        if not self.strata:
            return
        if not all(isinstance(name, str) and name for name in self.strata):
            raise InputError(f"strata must be names of columns, not {briefly(self.strata)}")
        self._refuse("strata")
        if isinstance(self.schema, Schema):
            for name in self.strata:
                self.schema.require_apart(name)
        if self.is_committed:
            raise InputError(
                "with strata the totals of each agent decide, and committed counts, which liars"
                " need, are those of one block each: leave liars and counting out"
            )
        if self.privacy is not None:
            raise PrivacyError(
                "with strata each agent tells its numbers of rows by stratum, which privacy does"
                " not cover: leave strata or privacy out"
            )

    @classmethod
    def of(cls, **settings: Any) -> RunSpec:
        """Read settings in the forms that users write: names, floats, texts.

        The regime "auto", which is the default, is resolved here:
        :func:`conovel.spec.regimes.choose_regime`. `names_models` says whether agents have scorers
        or precisions of their users' choice. With liars, counts are committed: in rounds a lying
        agent could fit its counts to those of the others.
        """
        regime = settings.pop("regime", AUTO_REGIME)
        given, lost = settings.get("pi0") is not None, settings.get("on_dropout", "abort")
        about_models = (
            settings.pop("names_models", False),
            settings.get("composite", AUTO) != AUTO,
            settings.get("bits", COMPACT) != COMPACT,
        )
        if settings.get("liars") and settings.get("counting", ROUNDS) == ROUNDS:
            settings["counting"] = COMMITTED
        chosen = choose_regime(
            regime, estimates_nulls=given, on_dropout=lost, names_models=any(about_models)
        )
        return cls(regime=chosen, **settings)

    def test_level(self, n_agents: int) -> Fraction:
        """Return the level of the step-up that decides; see :meth:`Regime.test_level`."""
        return self.regime.test_level(self.level, n_agents)

    @property
    def averaging(self) -> Averaging:
        """How the evidence of several runs decides."""
        return averaging(self.regime.deciding, estimates_nulls=self.pi0 is not None)

    def to_dict(self) -> dict[str, Any]:
        """Give the settings as plain JSON types, fractions as text."""
        columns = {} if self.schema is None else {"schema": _schema_as_plain(self.schema)}
        privacy = {} if self.privacy is None else {"privacy": str(self.privacy)}
        masks = {"masks": True} if self.masks else {}
        strata = {"strata": list(self.strata)} if self.strata else {}
        return {
            "regime": self.regime.name,
            "level": str(self.level),
            "composite": self.composite,
            "bits": self.bits,
            "pi0": spell_pi0(self.pi0),
            "seed": self.seed,
            "train_fraction": None if self.train_fraction is None else str(self.train_fraction),
            "on_dropout": self.on_dropout,
            "repeats": self.repeats,
            "liars": self.liars,
            "counting": self.counting,
            "reveal_to": self.reveal_to,
            **columns,
            **privacy,
            **masks,
            **strata,
        }

    @classmethod
    def from_dict(cls, plain: Any) -> RunSpec:
        """Read what :meth:`to_dict` wrote; :class:`InputError` for anything else."""
        if not isinstance(plain, Mapping):
            raise InputError(f"the settings of a run are a table, not {briefly(plain)}")
        names = {field.name for field in fields(cls)}
        if unknown := sorted(map(str, set(plain) - names)):
            raise InputError(f"a run has no setting called {', '.join(unknown)}")
        if missing := sorted(names - {"schema", "privacy", "masks", "strata"} - set(plain)):
            raise InputError(f"the settings of the run lack {', '.join(missing)}")
        for name in ("regime", "level", "composite", "on_dropout", "counting", "reveal_to"):
            _check_text(name, plain[name])
        for name in ("pi0", "train_fraction", "privacy"):
            if plain.get(name) is not None:
                _check_text(name, plain[name])
        if not isinstance(plain.get("strata", []), list | tuple):
            raise InputError(f"strata must be a list, not {briefly(plain['strata'])}")
        return cls(**{**plain, "schema": _schema_from_plain(plain.get("schema"))})

    def to_text(self) -> str:
        """Write the settings as one line of JSON: the one spelling that messages carry.

        It has the digest of the schema.
        """
        return json.dumps(self.told.to_dict(), separators=(",", ":"))

    @property
    def is_committed(self) -> bool:
        """Whether agents commit to their counts before they reveal them."""
        return self.counting != ROUNDS

    @property
    def hides_counts(self) -> bool:
        """Whether masks hide the counts that decide: in cells, if nobody has to reveal them."""
        return self.masks and not self.is_committed and self.regime.deciding == "cells"

    @property
    def told(self) -> RunSpec:
        """The settings as a hello carries them: with the digest of the schema."""
        if isinstance(self.schema, Schema):
            return replace(self, schema=SchemaDigest(self.schema.digests))
        return self

    @classmethod
    def from_text(cls, text: str) -> RunSpec:
        """Read what :meth:`to_text` wrote, to the letter; :class:`InputError` otherwise."""
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError("the settings of a run are not JSON") from None
        spec = cls.from_dict(plain)
        if spec.to_text() != text:
            raise InputError("the settings of a run are not in their one spelling")
        return spec

    def differences(self, other: RunSpec) -> list[str]:
        """Name the settings that differ, with both values, and the columns that differ."""
        ours, theirs = (json.loads(spec.to_text()) for spec in (self, other))
        if ours == theirs:
            return []
        columns = [spec.pop("schema", {"digests": {}})["digests"] for spec in (ours, theirs)]
        return differing_columns(*columns) + [
            f"{name} is {theirs.get(name)!r} instead of {ours.get(name)!r}"
            for name in dict.fromkeys([*ours, *theirs])
            if ours.get(name) != theirs.get(name)
        ]


def spell_pi0(estimator: NullProportion | None) -> str | None:
    """Write an estimator as :func:`conovel.stats.null_proportion.as_estimator` reads it."""
    return None if estimator is None else f"{type(estimator).__name__.lower()}:{estimator.at}"


def _schema_as_plain(schema: Schema | SchemaDigest) -> dict[str, Any]:
    return {"columns" if isinstance(schema, Schema) else "digests": schema.to_dict()}


def _schema_from_plain(plain: Any) -> Schema | SchemaDigest | None:
    match plain:
        case None:
            return None
        case {"columns": columns, **others} if not others:
            return Schema.from_dict(columns)
        case {"digests": digests, **others} if not others:
            return SchemaDigest(digests)
    raise InputError("the schema of a run has columns, or digests of them")


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InputError(f"{name} must be a text, not {briefly(value)}")


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

    Examples
    --------
    >>> repeat_seeds(7, 1), repeat_seeds(7, 3) == repeat_seeds(7, 5)[:3]
    ([7], True)
    """
    if repeats == 1:
        return [seed]
    runs = [np.random.SeedSequence(seed, spawn_key=(b,)) for b in range(repeats)]
    return [int(run.generate_state(1)[0]) for run in runs]


def repeated_specs(spec: RunSpec) -> list[RunSpec]:
    """Return the settings of each run that is averaged: its own seed, and the level β.

    Each run gets an equal part of ε and of δ. Each is the whole record of a run of its own, which
    can be made again without the others.

    Examples
    --------
    >>> [(one.level, one.repeats) for one in repeated_specs(RunSpec.of(level=0.1, repeats=2))]
    [(Fraction(1, 25), 1), (Fraction(1, 25), 1)]
    """
    if spec.repeats == 1:
        return [spec]
    level = run_level(spec.level, spec.averaging)
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
    counts of two runs that differ in one model only. `secret` is known to the site alone.
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

    It is in hexadecimal digits the first 16 bytes of SHA-256 over the terms in their canonical
    form, with a random nonce; a ``run_id`` among them is left out.
    """
    content = {name: value for name, value in terms.items() if name != "run_id"}
    return hashlib.sha256(canonical_json(content)).hexdigest()[:32]


def canonical_json(plain: Any) -> bytes:
    """Return JSON types as bytes, the same for equal values: sorted keys, no spaces, ASCII."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def require_listable(spec: RunSpec) -> None:
    """Refuse the settings of runs that are no evidence for a list (docs/theory.md, Theorem 14)."""
    if spec.repeats > 1 or spec.on_dropout != "abort":
        raise InputError("with a ledger leave repeats at 1 and on_dropout at 'abort'")
    if spec.liars:
        raise InputError(
            "a ledger lists rows by counts that nobody has committed to: leave it out, or take"
            " liars=0"
        )
    if reason := spec.regime.refusal("ledger"):
        raise InputError(reason)
    if spec.pi0 is not None and not spec.pi0.proven_for_several:
        raise InputError("a ledger needs runs with a proven bound: use pi0='storey', or none")


def of_batch(spec: RunSpec) -> RunSpec:
    """Give the settings of the run of a batch, from those of its list: half the level."""
    return replace(spec, level=spec.level * NETWORK_SHARE)


def of_list(spec: RunSpec) -> RunSpec:
    """Give the settings of a list, from those of the run of a batch."""
    return replace(spec, level=spec.level / NETWORK_SHARE)
