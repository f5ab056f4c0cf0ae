"""``conovel reproduce``: the paper's tables and further ones, with the published numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from conovel.cli.show import bar, is_dask, print_json, print_numbers, say, split_names
from conovel.cli.tables import with_options
from conovel.errors import InputError

if TYPE_CHECKING:
    from conovel.experiments.tasks import Learner


@with_options(
    experiment=typer.Argument(
        help="shift, quantization, conservative-shift, conservative-quantization, or all of these;"
        " agents, real or grid."
    ),
    trials=typer.Option(
        min=1, help="Trials; 100 by default, 20 for agents and real, 10 for grid."
    ),
    jobs="Number of trials that run at the same time; -1 for all cores.",
    out="Folder for tables, rows and figures; an interrupted run continues there.",
    data="real: folder of .npz data sets; by default digits.",
    scorer="forest (the paper's kind), default (conovel's own), or both with a comma.",
    composites="Composites to try, of max, mean, min and stacked.",
    shifts="Shifts δ of the sweeps, separated by commas; those of the paper by default.",
    level="Largest tolerated share of false alarms.",
    trees=typer.Option(min=1, help="Trees of the forest."),
    depth="Depth of the forest's trees, or none for no limit.",
    train_fraction="Share of the known normals that the forest is trained on.",
    grower="What grows the forest: compiled loops or scikit-learn.",
)
def reproduce(
    *,
    experiment: str,
    trials: int | None = None,
    jobs: int | None = None,
    seed: int = 0,
    out: Path = Path("reproduce"),
    data: Path | None = None,
    scorer: str = "forest",
    composites: str = "max,mean,min,stacked",
    shifts: str | None = None,
    level: str = "0.1",
    trees: int = 100,
    depth: str = "5",
    train_fraction: str = "1/2",
    grower: str | None = None,
    engine: str = "local",
    scheduler: str | None = None,
) -> None:
    """Repeat the paper's experiments and compare the results with the published ones.

    Example: `conovel reproduce all --jobs 2 --out tables`

    Example: `conovel reproduce real --data sets --scorer forest,default`
    """
    from conovel.cli.reproduce import read_shifts  # noqa: PLC0415
    from conovel.experiments.plans import Options  # noqa: PLC0415
    from conovel.experiments.reproduce import reproduce as run  # noqa: PLC0415
    from conovel.spec.settings import as_composite  # noqa: PLC0415
    from conovel.stats.levels import as_level  # noqa: PLC0415

    default_trials = {"agents": 20, "real": 20, "grid": 10}.get(experiment, 100)
    options = Options(
        trials=default_trials if trials is None else trials,
        seed=seed,
        level=str(as_level(level)),
        learners=_learners(scorer, trees, depth, train_fraction, grower),
        composites=tuple(as_composite(name) for name in split_names(composites)),
        shifts=None if shifts is None else tuple(read_shifts(shifts)),
        data=data,
    )
    with trials_on(engine, scheduler), _progress(experiment) as show_progress:
        outcomes = run(experiment, options, out, n_jobs=jobs, on_done=show_progress)
    for outcome in outcomes:
        for table in outcome.tables:
            print_numbers(table.title, table.columns, table.rows)
    files = [file for outcome in outcomes for file in outcome.files]
    say("written: " + ", ".join(map(str, files)))


def _learners(
    scorer: str, trees: int, depth: str, train_fraction: str, grower: str | None
) -> tuple[Learner, ...]:
    from conovel.experiments.tasks import Learner  # noqa: PLC0415
    from conovel.stats.levels import as_level  # noqa: PLC0415

    if depth != "none" and not (depth.isdigit() and int(depth) > 0):
        raise InputError(f"--depth {depth}: write a number of levels, or none")
    levels = None if depth == "none" else int(depth)
    share = str(as_level(train_fraction, "train_fraction"))
    if grower not in (None, "compiled", "scikit-learn"):
        raise InputError(f"--grower {grower}: choose compiled or scikit-learn")
    grown = {} if grower is None else {"engine": grower}
    forest = Learner("forest", trees, levels, share, **grown)
    learners = {"forest": forest, "default": Learner("default")}
    names = split_names(scorer)
    if not names or set(names) - set(learners):
        raise InputError(f"--scorer {scorer}: choose from {', '.join(learners)}")
    return tuple(learners[name] for name in names)


def trials_on(engine: str, scheduler: str | None) -> AbstractContextManager[None]:
    """Choose where the trials run."""
    if not is_dask(engine, scheduler):
        return nullcontext()
    from conovel.site.engines import joblib_on  # noqa: PLC0415

    return joblib_on(str(scheduler))


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of the run and the time left, on standard error."""
    from rich.progress import MofNCompleteColumn  # noqa: PLC0415

    # Trials are slow and differ: average the speed over a long time.
    with bar(MofNCompleteColumn(), speed_seconds=600) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@with_options(
    shifts="Shifts δ between the agents' normals, separated by commas.",
    level="Level of the step-up.",
    null_share=typer.Option(min=0, max=1, help="Share of normals among the tests."),
)
def limit(
    *,
    shifts: str = "0,0.5,1,2,3,4",
    level: str = "0.1",
    null_share: float = 0.9,
    json: bool = False,
) -> None:
    """Print the largest power on the paper's Gaussian design when all densities are known.

    One column has a common p-value threshold, as step-up procedures do. The other ranks rows
    across agents by likelihood ratio.

    Example: `conovel limit --shifts 2,3,4 --level 0.05`
    """
    from conovel.experiments.limit import limit_table  # noqa: PLC0415

    rows = limit_table(read_shifts(shifts), level, null_share)
    if json:
        print_json([{"shift": shift, **best._asdict()} for shift, best in rows])
        return
    say(f"{'shift':>6}  {'common threshold':>16}  {'likelihood ratio':>16}")
    for shift, best in rows:
        say(f"{shift:>6g}  {best.common:>16.4f}  {best.ratio:>16.4f}")


def read_shifts(text: str) -> list[float]:
    """Read shifts from the command line.

    Examples
    --------
    >>> read_shifts("0,0.5")
    [0.0, 0.5]
    """
    try:
        return [float(word) for word in split_names(text)]
    except ValueError:
        raise InputError(
            f"--shifts {text}: write numbers separated by commas, as in 0,1,2"
        ) from None
