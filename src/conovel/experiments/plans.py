"""The experiments: their designs, learners and cells.

The experiments of the paper share their designs, so `merged` joins them: a model is fitted once
for all five tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from conovel.experiments.gaussian import Gaussian
from conovel.experiments.limit import QUANTIZED_AT, SHIFTS
from conovel.experiments.realdata import real_sources
from conovel.experiments.tasks import Cell, Learner, Row, RowSource, Task
from conovel.spec.settings import Bits

PRECISIONS: tuple[Bits, ...] = (None, 6, 4, 2, 1, "compact")
AGENTS = (3, 9, 30)
AGENT_SHIFTS = (0.0, 2.0, 4.0)
BASELINES = (Cell("isolated"), Cell("counts"), Cell("pooled"))
# Settings that the paper does not state, tried at three shifts.
GRID = tuple(
    Learner("forest", trees, depth, fraction)
    for depth, trees, fraction in product((5, 10, None), (50, 100), ("1/2", "7/10"))
)
GRID_SHIFTS = (0.0, 2.0, 4.0)


@dataclass(frozen=True)
class Options:
    """The choices of a user."""

    trials: int = 100
    seed: int = 0
    level: str = "1/10"
    learners: tuple[Learner, ...] = (Learner(),)
    composites: tuple[str, ...] = ("max", "mean", "min", "stacked")
    shifts: tuple[float, ...] | None = None
    data: Path | None = None

    def designs(self, usual: Sequence[float], n_agents: int = 3) -> list[Gaussian]:
        """Return the Gaussian design at the chosen shifts, or at the usual ones."""
        return [Gaussian(delta, n_agents) for delta in self.shifts or usual]


def shift(options: Options) -> list[Task]:
    """Paper, tables "Global FDR" and "Statistical Power: Shift Sweep"."""
    return _tasks(
        options,
        options.designs(SHIFTS),
        lambda learner: (
            *BASELINES,
            *_exchange(("split", "full"), learner, options.composites, (None,)),
        ),
    )


def conservative_shift(options: Options) -> list[Task]:
    """Paper, table "Conservative Model Exchange: Simulated Dataset Shift"."""
    return _tasks(
        options,
        options.designs(SHIFTS),
        lambda learner: _exchange(("conservative",), learner, options.composites, (None,)),
    )


def quantization(options: Options) -> list[Task]:
    """Paper, table "Quantization Sweep"."""
    return _tasks(
        options,
        [Gaussian(QUANTIZED_AT)],
        lambda learner: (
            *BASELINES,
            *_exchange(("split", "full"), learner, options.composites, PRECISIONS),
        ),
    )


def conservative_quantization(options: Options) -> list[Task]:
    """Paper, table "Conservative Model Exchange: Quantization Sweep"."""
    return _tasks(
        options,
        [Gaussian(QUANTIZED_AT)],
        lambda learner: _exchange(("conservative",), learner, options.composites, PRECISIONS),
    )


def agents(options: Options) -> list[Task]:
    """Not in the paper: the same total data, divided among more and more agents."""
    return _tasks(
        options,
        [design for K in AGENTS for design in options.designs(AGENT_SHIFTS, K)],
        lambda learner: _all_regimes(learner, options.composites),
    )


def real(options: Options) -> list[Task]:
    """Not in the paper: real data, divided among three agents that differ."""
    return _tasks(
        options,
        real_sources(options.data),
        lambda learner: _all_regimes(learner, options.composites),
    )


def grid(options: Options) -> list[Task]:
    """Not in the paper: settings of the forest that it does not state."""
    return _tasks(
        replace(options, learners=GRID),
        options.designs(GRID_SHIFTS),
        lambda learner: (
            Cell("isolated"),
            Cell("counts"),
            Cell("split", "max"),
            Cell("conservative", "max"),
        ),
    )


EXPERIMENTS: Mapping[str, Callable[[Options], list[Task]]] = {
    "shift": shift,
    "quantization": quantization,
    "conservative-shift": conservative_shift,
    "conservative-quantization": conservative_quantization,
    "agents": agents,
    "real": real,
    "grid": grid,
}
PAPER = ("shift", "quantization", "conservative-shift", "conservative-quantization")


def merged(tasks: Iterable[Task]) -> list[Task]:
    """Join tasks on the same rows with the same learner into one that decides all their cells.

    Examples
    --------
    >>> options = Options(trials=1)
    >>> len(merged([*shift(options), *conservative_shift(options)])), len(shift(options))
    (6, 6)
    """
    cells: dict[Task, dict[Cell, None]] = {}
    for task in tasks:
        cells.setdefault(replace(task, cells=()), {}).update(dict.fromkeys(task.cells))
    return [replace(task, cells=tuple(wanted)) for task, wanted in cells.items()]


def rows_of(rows: Iterable[Row], tasks: Iterable[Task]) -> list[Row]:
    """Return the rows that these tasks asked for."""
    wanted = {
        (
            *_values(task.source.columns()),
            *_values(task.learner.columns()),
            task.trial,
            *_key(cell),
        )
        for task in tasks
        for cell in task.cells
    }
    return [row for row in rows if _identity(row) in wanted]


def _tasks(
    options: Options, sources: Sequence[RowSource], cells: Callable[[Learner], Sequence[Cell]]
) -> list[Task]:
    """Return tasks trial by trial, so that an interrupted run has complete trials."""
    return [
        Task(source, learner, tuple(cells(learner)), options.level, options.seed, trial)
        for trial in range(options.trials)
        for source in sources
        for learner in options.learners
    ]


def _exchange(
    regimes: Sequence[str], learner: Learner, composites: Sequence[str], precisions: Sequence[Bits]
) -> tuple[Cell, ...]:
    """Return the cells of regimes that exchange models.

    A stacked composite is fitted anew for each precision, so it is tried at two precisions only.
    conovel's own defaults have one composite, one precision and no blocks. In a sweep over
    precisions they are compared with the paper's composite, in the paper's regimes.
    """
    if learner.name == "default" and len(precisions) > 1:
        return tuple(Cell(*cell) for cell in product(regimes, ("max", "auto"), precisions))
    if learner.name == "default":
        unsplit = [regime for regime in regimes if regime != "split"]
        return tuple(Cell(regime, "auto", "compact") for regime in unsplit)
    return tuple(
        Cell(regime, composite, bits)
        for regime, composite, bits in product(regimes, composites, precisions)
        if composite != "stacked" or bits in (None, "compact")
    )


def _all_regimes(learner: Learner, composites: Sequence[str]) -> tuple[Cell, ...]:
    if learner.name == "default":  # what a user would run, without and with models
        return Cell("counts"), Cell("full", "auto", "compact"), Cell("joint", "auto", "compact")
    regimes = ("split", "conservative", "full")
    return (*BASELINES, *_exchange(regimes, learner, composites, (None,)))


def _key(cell: Cell) -> tuple[str, str, str]:
    return cell.regime, cell.composite, cell.precision


def _values(columns: Row) -> tuple[object, ...]:
    return tuple(columns.values())


def _identity(row: Row) -> tuple[object, ...]:
    names = ["data", "shift", "agents", "scorer", "trees", "depth", "train_fraction", "trial"]
    return tuple(row[name] for name in [*names, "regime", "composite", "precision"])
