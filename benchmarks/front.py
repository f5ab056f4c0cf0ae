"""Power against bytes: the paper's quantizer, small surrogates and no exchange at all.

    python -m benchmarks front [--trials 100] [--out front.jsonl] [--data SET.npz]

The paper's Gaussian design at δ = 2, three agents, α = 0.1. In one trial of one setting all
rows of the table share data, splits and the agents' local models (100 extra trees); only what is
sent to peers differs. Compact models imitate a model of clipped rows, as those of a network do.
Bytes are those of `conovel.models.wire`, header included; large forests are encoded in the first
trials only, since their sizes hardly vary. With ``--out`` every trial is kept as a line of JSON,
and a run that was broken off goes on from there. ``--data`` takes a data set of the
`default_scorer` benchmark instead of the design, dealt out to three agents at random.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from sklearn.ensemble import RandomForestClassifier

import conovel as cn
from benchmarks.default_scorer import real
from conovel.experiments.gaussian import Labelled, gaussian_design
from conovel.models import wire
from conovel.models.quantized.forest import uniform
from conovel.scorers.argument import scorer_by_name
from conovel.scorers.base import FittedScorer, Mixture, Scorer, TrainingSet
from conovel.scorers.estimators import as_scorer
from conovel.scorers.from_sklearn import to_flat
from conovel.site.blocks import split_null
from conovel.site.sent.compact import DEFAULT, PROFILES, fit_compact
from conovel.site.sent.surrogate import fit_imitated

LEVEL = Fraction(1, 10)
K = 3
BITS = (None, 6, 4, 2, 1)
REFERENCE = "random forest, full depth, float64"
SIZED = 5  # trials in which large forests are encoded
# What is decided from the scores of a setting: regime, composite.
COLUMNS = {
    "unsplit": [("full", "mean"), ("full", "max"), ("conservative", "max")],
    "split": [("split", "mean"), ("split", "max")],
}
N_MODELS = K * (K - 1)

Model = Any
Agents = Callable[[int], list[Labelled]]  # the agents of a trial
Row = tuple[Model, int | None]  # what a peer scores with, and its bytes if they were counted


@dataclass(eq=False)
class Block:
    """Rows that a model is fitted on, with the truth about the tested ones."""

    null_train: np.ndarray
    mixture: Mixture
    n_calibration: int
    is_novel: np.ndarray
    seed: int

    @cached_property
    def training(self) -> TrainingSet:
        return TrainingSet(self.null_train, self.mixture)

    @cached_property
    def scorer(self) -> Scorer:
        trees = scorer_by_name("extra-trees").set_params(n_estimators=100, random_state=self.seed)
        return as_scorer(trees)

    @cached_property
    def local(self) -> FittedScorer:
        return self.scorer.fit(self.training)


def dealt(file: Path) -> Agents:
    """Deal the rows of a real data set out to the agents."""
    sample = real(file)

    def agents(trial: int) -> list[Labelled]:
        rng = np.random.default_rng(trial)
        X_null, X_test, is_novel = sample(rng)
        tests = np.array_split(rng.permutation(len(X_test)), K)
        nulls = np.array_split(X_null, K)
        return [Labelled(n, X_test[t], is_novel[t]) for n, t in zip(nulls, tests, strict=True)]

    return agents


def blocks_of(agents: list[Labelled], trial: int, setting: str) -> list[list[Block]]:
    """Return the block that agent i makes a model from for agent j, at [i][j]."""
    seeds = np.random.SeedSequence(trial).generate_state(K).tolist()
    return [
        [whole_block(agent, seed)] * K if setting == "unsplit" else thirds(agent, seed)
        for agent, seed in zip(agents, seeds, strict=True)
    ]


def whole_block(agent: Labelled, seed: int) -> Block:
    train, calibration = split_null(len(agent.X_null), Fraction(1, 2), seed)
    rows = np.concatenate([agent.X_null[calibration], agent.X_test])
    return Block(agent.X_null[train], Mixture.of(rows), calibration.size, agent.is_novel, seed)


def thirds(agent: Labelled, seed: int) -> list[Block]:
    rng = np.random.default_rng(seed)
    nulls, tests = (
        np.array_split(rng.permutation(len(rows)), K) for rows in (agent.X_null, agent.X_test)
    )
    return [
        whole_block(Labelled(agent.X_null[n], agent.X_test[t], agent.is_novel[t]), seed)
        for n, t in zip(nulls, tests, strict=True)
    ]


def surrogates(block: Block, sized: bool) -> Iterator[tuple[str, Row]]:
    """Make everything that may be sent from a block, sharing fits where only bits differ."""
    forests = {
        "random forest, full depth": partial(RandomForestClassifier, 100),
        "random forest, depth 5": partial(RandomForestClassifier, 100, max_depth=5),
    }
    for name, make in forests.items():
        scorer = make(random_state=block.seed)
        flat = to_flat(as_scorer(scorer).fit(block.training).estimator)
        for bits in BITS:
            model = flat if bits is None else uniform(flat, bits)
            yield f"{name}, {precision(bits)}", (model, len(wire.encode(model)) if sized else None)
    flat = to_flat(block.local.estimator)
    yield "the local model, float64", (flat, len(wire.encode(flat)) if sized else None)
    taught = fit_imitated(block.training, block.seed, [block.scorer], None)
    for profile in PROFILES:
        small = fit_compact(taught.model, taught.training, block.seed, profile, taught.bounds)
        yield compact_name(profile), (small, len(wire.encode(small)))


def precision(bits: int | None) -> str:
    return "float64" if bits is None else f"{bits} bit{'s' * (bits > 1)}"


def compact_name(profile: Any) -> str:
    return f"{'compact (default)' if profile == DEFAULT else 'compact'}, {profile}"


def run_trial(agents: Agents, trial: int, setting: str) -> dict[str, Any]:
    """Return power, false discovery proportion and bytes of every row of one setting."""
    blocks = blocks_of(agents(trial), trial, setting)
    own = [blocks[j][j] for j in range(K)]
    local = [block.local.score(block.mixture.distinct) for block in own]
    made: dict[str, dict[int, Row]] = {}
    senders = {id(blocks[i][j]): blocks[i][j] for i, j in product(range(K), repeat=2) if i != j}
    for key, block in senders.items():
        for name, row in surrogates(block, trial < SIZED):
            made.setdefault(name, {})[key] = row
    results = {"local only": {"bytes": 0, **decide(own, [[s] for s in local], setting)}}
    for name, rows in made.items():
        scores = [
            [local[j]]
            + [
                rows[id(blocks[i][j])][0].score(own[j].mixture.distinct)
                for i in range(K)
                if i != j
            ]
            for j in range(K)
        ]
        sizes = [size for _, size in rows.values() if size is not None]
        results[name] = {
            "bytes": float(np.mean(sizes)) if sizes else None,
            **decide(own, scores, setting),
        }
    return {"trial": trial, "setting": setting, "rows": results}


def decide(
    own: list[Block], scores: list[list[np.ndarray]], setting: str
) -> dict[str, tuple[float, float]]:
    """Return (power, false discovery proportion) over the tested rows, for each column."""
    combine: dict[str, Callable[..., np.ndarray]] = {"mean": np.mean, "max": np.max}
    out = {}
    for regime, composite in COLUMNS[setting]:
        ranks = []
        for block, stack in zip(own, scores, strict=True):
            together = combine[composite](np.stack(stack), axis=0)[block.mixture.position]
            calibration, tests = np.split(together, [block.n_calibration])
            ranks.append((cn.conformal_ranks(calibration, tests), block.n_calibration))
        if regime == "conservative":
            rejected = [cn.benjamini_hochberg(r, n, LEVEL / K) for r, n in ranks]
        else:
            rejected = cn.fast_lsu(ranks, LEVEL).rejected
        flags, novel = np.concatenate(rejected), np.concatenate([b.is_novel for b in own])
        power = float(flags[novel].mean())
        fdp = float(flags[~novel].sum() / max(flags.sum(), 1))
        out[f"{regime}, {composite}"] = (round(power, 5), round(fdp, 5))
    return out


def read(file: Path | None) -> list[dict[str, Any]]:
    if file is None or not file.exists():
        return []
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@dataclass(frozen=True)
class Summary:
    """One row of the table: mean and standard error over the trials."""

    name: str
    n_bytes: float
    power: float
    error: float
    fdr: float
    gain: float  # power minus that of the full-depth float64 forest, paired by trial
    gain_error: float


def summarise(lines: list[dict[str, Any]], setting: str, column: str) -> list[Summary]:
    """Average the trials of a setting, row by row."""
    trials = [line["rows"] for line in lines if line["setting"] == setting]
    reference = np.array([rows[REFERENCE][column][0] for rows in trials])
    result = []
    for name in trials[0]:
        power, fdp = np.array([rows[name][column] for rows in trials]).T
        sizes = [rows[name]["bytes"] for rows in trials if rows[name]["bytes"] is not None]
        gain = power - reference
        root = max(len(trials) - 1, 1) ** 0.5
        result.append(
            Summary(
                name,
                float(np.mean(sizes)) if sizes else float("nan"),
                float(power.mean()),
                float(power.std() / root),
                float(fdp.mean()),
                float(gain.mean()),
                float(gain.std() / root),
            )
        )
    return result


def table(lines: list[dict[str, Any]], setting: str) -> str:
    """Return the Markdown table of a setting."""
    columns = [f"{regime}, {composite}" for regime, composite in COLUMNS[setting]]
    heads = ["sent to each peer", "bytes a model", "kilobits for K = 3"]
    heads += [f"{column}: power (FDR)" for column in columns]
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for entries in zip(*(summarise(lines, setting, column) for column in columns), strict=True):
        size = entries[0].n_bytes
        cells = [entries[0].name, f"{size:,.0f}", f"{size * N_MODELS * 8 / 1000:,.1f}"]
        cells += [f"{e.power:.3f} ± {e.error:.3f} ({e.fdr:.3f})" for e in entries]
        rows.append(cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def gains(lines: list[dict[str, Any]], setting: str) -> str:
    """Return what every row gains over the full-depth float64 forest, paired by trial."""
    return "\n".join(
        f"{regime}, {composite}: {row.gain:+.3f} ± {row.gain_error:.3f}  {row.name}"
        for regime, composite in COLUMNS[setting]
        for row in summarise(lines, setting, f"{regime}, {composite}")
        if row.name != REFERENCE
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--out", type=Path, help="where to keep the trials, as lines of JSON")
    parser.add_argument("--data", type=Path, help="an .npz file; only the unsplit setting runs")
    args, _ = parser.parse_known_args()
    settings = ["unsplit"] if args.data else list(COLUMNS)
    agents = dealt(args.data) if args.data else partial(gaussian_design, 2.0, n_agents=K)
    lines = read(args.out)
    done = {(line["trial"], line["setting"]) for line in lines}
    wanted = [pair for pair in product(range(args.trials), settings) if pair not in done]
    for trial, setting in track(wanted, description="trials"):
        lines.append(run_trial(agents, trial, setting))
        if args.out is not None:
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    for setting in settings:
        n = sum(line["setting"] == setting for line in lines)
        print(f"\n{setting}, {n} trials\n\n{table(lines, setting)}\n\n{gains(lines, setting)}")


if __name__ == "__main__":
    main()
