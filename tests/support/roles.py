"""Exchange calibration rows and test rows, and see that nothing else changes.

A score is valid when it depends on the mixture as an unordered multiset (docs/theory.md,
section 2). So a whole run is made twice. In the second run some calibration rows stand in
`X_test` and the test rows whose places they took stand in `X_null`. Every row must keep its
score, every model its bytes and every choice its figures, bit for bit.

Which known normals calibrate is found by a run on numbered rows: the cut is by position, so
that rows of the same numbers are cut in the same way.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.tree import DecisionTreeClassifier

import conovel as cn
from conovel.protocol.agent import Agent
from conovel.protocol.messages import decode
from conovel.rows.known_files import KnownFile
from conovel.runs.file_detection import detect_files
from conovel.scorers.argument import as_candidates
from conovel.scorers.base import FittedScorer, Scorer, TrainingSet
from conovel.scorers.estimators import as_scorer
from conovel.site.engines import MemoryPlan
from conovel.site.open_files import open_files_site
from conovel.site.output import DecisionFile
from conovel.site.stored_blocks import StoredBlock
from conovel.site.work import SiteWork
from conovel.spec.bodies import Model
from conovel.spec.run_spec import RunSpec
from conovel.stats import ranks
from support.fake_link import Link

NAMES = "abcdefgh"


class Sample(NamedTuple):
    """The rows of one agent."""

    X_null: Any
    X_test: Any


class Block(NamedTuple):
    """A mixture: positions among the known normals and the test rows of all agents."""

    calibration: Any
    tests: Any


@dataclass
class Seen:
    """What a run shows, for the rows of all agents one after the other.

    `null_scores` is NaN where a row trained, `test_scores` where it was not tested.
    """

    null_scores: Any
    test_scores: Any
    models: dict[tuple[str, str], bytes] = field(default_factory=dict)
    choices: dict[str, Any] = field(default_factory=dict)


# A run: from samples, a scorer and what calibrates (None: not asked for) to what is seen.
Run = Callable[[Sequence[Sample], Any, "Sequence[Block] | None"], "Seen | None"]


def assert_roles_do_not_matter(
    run: Run, samples: Sequence[Sample], scorer: Any, *, splits_rows: bool = False, seed: int = 0
) -> None:
    """Make a run twice, the second time with exchanged roles, and compare bit for bit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blocks = mixtures(run, samples, splits_rows)
        before = run(samples, scorer, blocks)
        pairs = exchange(blocks, seed)
        after = run(exchanged(samples, pairs), scorer, blocks)
    cal, tests = pairs
    expected_null, expected_test = before.null_scores.copy(), before.test_scores.copy()
    expected_null[cal], expected_test[tests] = before.test_scores[tests], before.null_scores[cal]
    assert np.isfinite(before.test_scores[tests]).all() or splits_rows
    assert after.models == before.models, "a model has other bytes"
    assert after.choices == before.choices, "another choice, or another enrichment"
    assert_same_bits(after.test_scores, expected_test, "test rows")
    assert_same_bits(after.null_scores, expected_null, "calibration rows")


def assert_same_bits(got: Any, expected: Any, what: str) -> None:
    same = np.isnan(expected) & np.isnan(got) | (got.view(np.int64) == expected.view(np.int64))
    assert same.all(), f"{np.count_nonzero(~same)} {what} have other scores"


def exchange(blocks: Sequence[Block], seed: int) -> tuple[Any, Any]:
    """Choose calibration rows and as many test rows of the same mixture, half of what there is."""
    rng = np.random.default_rng(seed)
    chosen = []
    for block in blocks:
        n = max(1, min(block.calibration.size, block.tests.size) // 2)
        chosen.append([rng.choice(rows, n, replace=False) for rows in block])
    cal, tests = (np.concatenate(part) for part in zip(*chosen, strict=True))
    return cal, tests


def exchanged(samples: Sequence[Sample], pairs: tuple[Any, Any]) -> list[Sample]:
    """Put the rows of each pair in each other's places."""
    cal, tests = pairs
    X_null, X_test = (np.concatenate(rows) for rows in zip(*samples, strict=True))
    X_null[cal], X_test[tests] = X_test[tests], X_null[cal]
    stops = [np.cumsum([len(rows) for rows in part])[:-1] for part in zip(*samples, strict=True)]
    return [
        Sample(*pair)
        for pair in zip(np.split(X_null, stops[0]), np.split(X_test, stops[1]), strict=True)
    ]


def of_tables(run: Run, rows: Any, as_sample: Callable[[Any], Any] = lambda rows: rows) -> Run:
    """Give a run the rows of a table in place of their numbers.

    Parameters
    ----------
    rows : pandas DataFrame
        All rows of all samples; samples hold numbers of rows.
    as_sample : callable
        Makes what a user would give of the rows of a sample.
    """

    def run_tables(samples: Sequence[Sample], scorer: Any, blocks: Any) -> Seen | None:
        if blocks is not None:
            samples = [
                Sample(*(as_sample(rows.iloc[numbers[:, 0]]) for numbers in sample))
                for sample in samples
            ]
        return run(samples, scorer, blocks)

    return run_tables


def numbered(*sizes: tuple[int, int]) -> list[Sample]:
    """Number the rows of agents with so many known normals and tests."""
    stops = np.cumsum([0, *(n for pair in sizes for n in pair)])
    parts = [np.arange(a, b)[:, np.newaxis] for a, b in itertools.pairwise(stops)]
    return [Sample(*parts[2 * j : 2 * j + 2]) for j in range(len(sizes))]


# Which rows calibrate ------------------------------------------------------------------------


class Spy(Scorer):
    """A scorer that notes the rows that train and those of the mixture."""

    label = "spy"

    def __init__(self) -> None:
        self.fits: list[tuple[Any, Any]] = []

    def fit(self, training: TrainingSet) -> FittedScorer:
        samples = training.null_train, training.mixture.rows
        self.fits.append(tuple(rows[:, 0].astype(int) for rows in samples))
        return as_scorer(DecisionTreeClassifier(max_depth=1)).fit(training)

    def with_seed(self, seed: int) -> Scorer:
        return self


def mixtures(run: Run, samples: Sequence[Sample], splits_rows: bool) -> list[Block]:
    """Find the mixtures of a run: known normals are numbered from 0, test rows from their end."""
    n_null, n_test = (sum(map(len, rows)) for rows in zip(*samples, strict=True))
    width = samples[0].X_null.shape[1]
    numbers = np.repeat(np.arange(n_null + n_test)[:, np.newaxis], width, axis=1).astype(float)
    starts = np.cumsum([0] + [len(sample.X_null) for sample in samples])
    offsets = np.cumsum([n_null] + [len(sample.X_test) for sample in samples])
    numbered = [
        Sample(
            numbers[start : start + len(sample.X_null)],
            numbers[offset : offset + len(sample.X_test)],
        )
        for sample, start, offset in zip(samples, starts, offsets, strict=False)
    ]
    spy = Spy()
    run(numbered, spy, None)
    blocks = []
    for train, mixture in spy.fits:
        if splits_rows:
            cal, tests = mixture[mixture < n_null], mixture[mixture >= n_null]
        else:  # the mixture may be a sample: take all that do not train of whoever trains
            inside = np.unique(np.searchsorted(starts, train, side="right") - 1)
            cal, tests = (
                np.concatenate([np.arange(at[j], at[j + 1]) for j in inside])
                for at in (starts, offsets)
            )
            cal = np.setdiff1d(cal, train)
        blocks.append(Block(np.sort(cal), np.sort(tests) - n_null))
    return blocks


def _scores_by_row(
    blocks: Sequence[Block], noted: Sequence[tuple[Any, Any]], test_scores: Any, n_null: int
) -> Any:
    """Give every calibration row its score.

    `noted` holds the calibration scores and the test scores of each mixture that was ranked.
    """
    null_scores = np.full(n_null, np.nan)
    for calibration, tests in noted:
        [block] = [
            block
            for block in blocks
            if block.tests.size == tests.size
            and np.array_equal(test_scores[block.tests], tests, equal_nan=True)
        ]
        null_scores[block.calibration] = calibration
    return null_scores


# The runs --------------------------------------------------------------------------------------


def in_network(known_rows: Sequence[Any] = (), **options: Any) -> Run:
    """Run `cn.Network`; the first agents have known novelties, which do not change the cut."""

    def run(samples: Sequence[Sample], scorer: Any, blocks: Sequence[Block] | None) -> Seen | None:
        novel = dict(zip(NAMES, known_rows if blocks else (), strict=False))
        agents = [
            cn.Agent(name, *sample, X_known=novel.get(name))
            for name, sample in zip(NAMES, samples, strict=False)
        ]
        noted: list[tuple[Any, Any]] = []
        models: dict[tuple[str, str], bytes] = {}

        def note_scores(calibration: Any, tests: Any) -> Any:
            noted.append((calibration, tests))
            return ranks.conformal_ranks(calibration, tests)

        take = Agent.take

        def note_models(agent: Agent, message: Any, peer: str = "") -> Any:
            if isinstance(message.body, Model):
                models[message.sender, message.receiver] = message.body.blob
            return take(agent, message, peer)

        given = dict(options)
        if blocks is None:  # only the cut is asked for, and a composite does not change it
            given |= {"composite": "max", "bits": 1, "schema": None}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("conovel.site.blocks.conformal_ranks", note_scores)
            patch.setattr(Agent, "take", note_models)
            result = cn.Network(agents, scorer=scorer, **given).run()
        if blocks is None:
            return None
        test_scores = np.concatenate([site.scores for site in result.values()])
        n_null = sum(len(sample.X_null) for sample in samples)
        null_scores = _scores_by_row(blocks, noted, test_scores, n_null)
        choices = {name: site.choices for name, site in result.items()}
        return Seen(null_scores, test_scores, models, choices)

    return run


def in_detector(known_rows: Any = None, **options: Any) -> Run:
    """Run `cn.AdaDetect`, with known novelties if there are any."""

    def run(samples: Sequence[Sample], scorer: Any, blocks: Sequence[Block] | None) -> Seen | None:
        [sample] = samples
        given = options if blocks else {k: v for k, v in options.items() if k != "schema"}
        result = cn.AdaDetect(scorer, **given).detect(*sample, known_rows if blocks else None)
        if blocks is None:
            return None
        null_scores = np.full(len(sample.X_null), np.nan)
        null_scores[blocks[0].calibration] = result.calibration_scores
        return Seen(null_scores, result.scores, choices=dict(result.choices))

    return run


def in_files(
    folder: Path,
    *,
    piece: int = 16,
    write: Callable[[Path, Sample], tuple[Path, Path]] | None = None,
    known_rows: KnownFile | None = None,
    **options: Any,
) -> Run:
    """Run `detect_files` on files that are read a few rows at a time: Parquet, or by `write`."""
    numbers = itertools.count()
    write = write or _write

    def run(samples: Sequence[Sample], scorer: Any, blocks: Sequence[Block] | None) -> Seen | None:
        [sample] = samples
        here = folder / f"run-{next(numbers)}"
        paths = write(here, sample)
        given = options if blocks else {k: v for k, v in options.items() if k != "schema"}
        with _cut_into(piece) as noted:
            detector = cn.AdaDetect(scorer, **given)
            novel = known_rows if blocks else None
            result = detect_files(detector, *paths, here / "out.parquet", known_file=novel)
        if blocks is None:
            return None
        test_scores = pa_parquet.read_table(result.out)["score"].to_numpy()
        null_scores = np.full(len(sample.X_null), np.nan)
        null_scores[blocks[0].calibration] = noted[0]
        return Seen(null_scores, test_scores, choices=dict(result.choices))

    return run


def between_file_sites(
    folder: Path, *, regime: str, composite: str, bits: Any, piece: int = 16, privacy: Any = None
) -> Run:
    """Run the protocol between agents whose rows are in files."""
    numbers = itertools.count()

    def run(samples: Sequence[Sample], scorer: Any, blocks: Sequence[Block] | None) -> Seen | None:
        sites = {}
        here = folder / f"run-{next(numbers)}"
        with _cut_into(piece) as noted:  # a site plans its pieces when it is made
            for seed, (name, sample) in enumerate(zip(NAMES, samples, strict=False)):
                spec = RunSpec.of(
                    regime=regime,
                    composite=composite if blocks else "max",
                    bits=bits if blocks else 1,
                    level="1/5",
                    seed=seed,
                    privacy=privacy,
                )
                asked = SiteWork(spec, tuple(as_candidates(scorer, seed)), len(samples))
                at = here / name
                paths = _write(at, sample)
                sites[name] = open_files_site(*paths, asked, at / "work", memory="1GB")
            link = Link(sites, regime=regime, level="1/5").run()
            for agent in link.agents.values():
                _ = agent.limit  # a run that failed says why
        if blocks is None:
            return None
        test_scores, by_site = [], dict(zip(_ranked_order(link), noted, strict=True))
        null_scores = np.full(sum(len(sample.X_null) for sample in samples), np.nan)
        for name, site in sites.items():
            out = here / name / "out.parquet"
            DecisionFile(site, link.agents[name].limit).write(out)
            test_scores.append(pa_parquet.read_table(out)["score"].to_numpy())
            site.close()
        all_scores = np.concatenate(test_scores)
        starts = np.cumsum([0] + [len(sample.X_test) for sample in samples])
        for block in blocks:
            # Of an agent's blocks only its own has scores.
            if np.isfinite(all_scores[block.tests]).all():
                j = int(np.searchsorted(starts, block.tests[0], side="right")) - 1
                null_scores[block.calibration] = by_site[NAMES[j]]
        models = {
            (sender, receiver): decode(data).body.blob
            for sender, receiver, data in link.delivered
            if isinstance(decode(data).body, Model)
        }
        choices = {name: site.choices for name, site in sites.items()}
        return Seen(null_scores, all_scores, models, choices)

    return run


def _ranked_order(link: Link) -> list[str]:
    """Agents in the order in which they ranked: that of their READY messages."""
    return [s for s, _, data in link.delivered if decode(data).body.kind.name == "READY"]


def _write(folder: Path, sample: Sample) -> tuple[Path, Path]:
    folder.mkdir(parents=True)
    for name, rows in zip(("null", "test"), sample, strict=True):
        (folder / name).mkdir()
        if isinstance(rows, pa.Table):
            table = rows
        else:
            table = pa.table({f"x{j}": column for j, column in enumerate(rows.T)})
        for i, part in enumerate(np.array_split(np.arange(len(rows)), 2)):
            pa_parquet.write_table(table.take(part), folder / name / f"{i}.parquet")
    return folder / "null", folder / "test"


class _cut_into:
    """Read files in small pieces, and note the calibration scores in the order of their rows."""

    def __init__(self, piece: int) -> None:
        self._piece = piece
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> list[Any]:
        noted: list[Any] = []
        rank = StoredBlock.rank

        def note(block: StoredBlock, *arguments: Any) -> Any:
            ranked = rank(block, *arguments)
            noted.append(ranked.calibration_scores)
            return ranked

        plan = classmethod(lambda cls, *_: cls(self._piece, 16))
        self._patch.setattr(MemoryPlan, "of", plan)
        self._patch.setattr(StoredBlock, "rank", note)
        return noted

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


# Samples -----------------------------------------------------------------------------------------


def _continuous(rng: Any, n: int, d: int) -> Any:
    return rng.normal(size=(n, d))


def _duplicates(rng: Any, n: int, d: int) -> Any:
    """Half of the rows are one of eight."""
    few = np.random.default_rng(7).normal(size=(8, d))
    return np.where(rng.random((n, 1)) < 0.5, few[rng.integers(0, 8, n)], rng.normal(size=(n, d)))


def _integers(rng: Any, n: int, d: int) -> Any:
    return rng.poisson(2.0, size=(n, d))


class Kind(NamedTuple):
    """How rows are drawn: by what, how many known normals and tests, and how wide."""

    draw: Callable[[Any, int, int], Any]
    n_null: int = 60
    n_test: int = 24
    width: int = 3
    dtype: str = "float64"


KINDS: Mapping[str, Kind] = {
    "continuous": Kind(_continuous),
    "duplicates": Kind(_duplicates),
    "integers": Kind(_integers, dtype="int64"),
    "wide": Kind(_continuous, n_null=24, n_test=10, width=40),
    "tiny": Kind(_continuous, n_null=8, n_test=4, width=2),
    "float32": Kind(lambda rng, n, d: rng.normal(size=(n, d)).round(1), dtype="float32"),
}


def draw(kind: str, n_agents: int = 1, seed: int = 0) -> list[Sample]:
    """Draw unequal agents; the last quarter of the tests are novelties."""
    how = KINDS[kind]
    rng = np.random.default_rng(seed)
    samples = []
    for j in range(n_agents):
        n_null, n_test = how.n_null + 4 * j, how.n_test + 2 * j
        X_null, X_test = how.draw(rng, n_null, how.width), how.draw(rng, n_test, how.width)
        X_test[-(n_test // 4) :] += 3
        samples.append(Sample(X_null.astype(how.dtype), X_test.astype(how.dtype)))
    return samples


# A scorer that breaks the rule ------------------------------------------------------------------


class ArrivalOrder(Scorer):
    """A forest fitted on the mixture in its order of arrival, calibration rows first.

    The mistake of docs/theory.md, section 2: bootstrap rows are drawn by position.
    """

    label = "arrival order"

    def with_seed(self, seed: int) -> Scorer:
        return self

    def fit(self, training: TrainingSet) -> FittedScorer:
        null_train, mixture = training.null_train, training.mixture
        arrived = mixture.distinct[mixture.position]
        forest = ExtraTreesClassifier(10, bootstrap=True, random_state=0)
        labels = np.repeat([0, 1], [len(null_train), len(arrived)])
        forest.fit(np.concatenate([null_train, arrived]), labels)
        return FittedScorer(self, lambda X: forest.predict_proba(X)[:, 1], "probability", forest)


# Combinations ------------------------------------------------------------------------------------


def covering(factors: Mapping[str, Sequence[Any]], strength: int) -> Iterator[dict[str, Any]]:
    """Give combinations that hold every choice of values of any `strength` factors at least once.

    Greedy: take an open choice, and fill in the value of each other factor that closes most.
    """
    names = list(factors)
    groups = list(itertools.combinations(names, strength))
    todo = {
        (group, values): None
        for group in groups
        for values in itertools.product(*(factors[name] for name in group))
    }

    def closed(row: Mapping[str, Any]) -> list[Any]:
        done = [group for group in groups if all(name in row for name in group)]
        keys = [(group, tuple(row[name] for name in group)) for group in done]
        return [key for key in keys if key in todo]

    while todo:
        group, values = next(iter(todo))
        row = dict(zip(group, values, strict=True))
        for name in names:
            if name not in row:
                row[name] = max(factors[name], key=lambda v, n=name: len(closed({**row, n: v})))
        for key in closed(row):
            del todo[key]
        yield {name: row[name] for name in names}
