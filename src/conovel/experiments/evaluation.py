"""What would have been found? One labelled table, dealt into known normals and tests.

It gives realised false alarms and power on past data, with their spread; and what labels are
worth: the same with known novelties.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError, SampleError
from conovel.experiments.labels import read_label, require_features, split_column
from conovel.rows.schemas import SchemaLike
from conovel.runs.check_order import order_of, take
from conovel.runs.detection import Detection
from conovel.runs.detector import AdaDetect
from conovel.runs.pages import axes_or_new
from conovel.runs.repeats import once_warned
from conovel.scorers.estimators import ScorerLike
from conovel.spec.findings import Finding, subject, worst_of
from conovel.stats.levels import Level, RandomState, as_callback, as_level, as_seed, as_whole
from conovel.stats.null_proportion import NullProportion
from conovel.stats.words import counted

_log = logging.getLogger(__name__)

NUMBERS_KNOWN = (5, 20, 100)  # how many novelties are known, where so many are set aside


class Trial(NamedTuple):
    """One deal of the rows, and what came out.

    Attributes
    ----------
    n_null, n_test, n_novel : int
        Known normals, tested rows, and the novelties among these.
    n_flagged, n_found : int
        Flagged rows, and the novelties among these.
    warnings : tuple of Finding
    """

    n_null: int
    n_test: int
    n_novel: int
    n_flagged: int
    n_found: int
    warnings: tuple[Finding, ...] = ()

    @property
    def n_false(self) -> int:
        """Flagged rows that are normal."""
        return self.n_flagged - self.n_found

    @property
    def fdp(self) -> float:
        """The share of false alarms among the flagged rows; 0 if none is flagged."""
        return self.n_false / max(self.n_flagged, 1)

    @property
    def power(self) -> float:
        """The share of novelties that were flagged; NaN if there are none."""
        return self.n_found / self.n_novel if self.n_novel else float("nan")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What would have been found in a labelled table.

    Attributes
    ----------
    trials : tuple of Trial
    level : Fraction
        The promised false discovery rate.
    normal : str
        The label of normal rows.
    by_order : bool
        Whether later rows were tested against earlier ones; otherwise rows were dealt at random.
    by_known : mapping of int to tuple of Trial
        With `known_share`, the same trials with so many known novelties; with 0 they are `trials`.

    See Also
    --------
    conovel.evaluate : Makes it.
    """

    trials: tuple[Trial, ...]
    level: Fraction
    normal: str
    by_order: bool
    by_known: Mapping[int, tuple[Trial, ...]] = field(default_factory=dict)

    @property
    def fdp(self) -> float:
        """The mean share of false alarms among the flagged rows."""
        return float(np.mean([trial.fdp for trial in self.trials]))

    @property
    def power(self) -> float:
        """The mean share of novelties that were flagged."""
        powers = [trial.power for trial in self.trials if trial.n_novel]
        return float(np.mean(powers)) if powers else float("nan")

    def spread(self, what: str) -> tuple[float, float]:
        """Return the standard deviation of "fdp" or "power" over the trials, and of its mean."""
        _, deviation, error = _moments(self.trials, what)
        return deviation, error

    def with_known(self, n_known: int) -> Evaluation:
        """Return the evaluation in which so many novelties are known, one of `by_known`."""
        return replace(self, trials=self.by_known[n_known], by_known={})

    def plot(self, ax: Any = None) -> Any:
        """Draw the power against the number of known novelties, with its standard error.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; new ones if not given.

        Returns
        -------
        matplotlib Axes
        """
        if not self.by_known:
            raise InputError("no novelties were known: evaluate with known_share")
        ax = axes_or_new(ax)
        for what, label in (("power", "novelties found"), ("fdp", "false alarms among flagged")):
            moments = [_moments(trials, what) for trials in self.by_known.values()]
            means, errors = zip(*((mean, error) for mean, _, error in moments), strict=True)
            places = range(len(means))  # numbers grow by factors
            ax.errorbar(places, means, np.nan_to_num(errors), marker="o", capsize=3, label=label)
        ax.axhline(float(self.level), linestyle=":", color="0.5", label="level")
        ax.set_xticks(range(len(self.by_known)), [str(n) for n in self.by_known])
        ax.set_ylim(-0.02, 1.02)
        ax.set_xlabel("known novelties")
        ax.set_ylabel("share, mean and standard error")
        ax.set_title("what known novelties are worth")
        ax.legend()
        return ax

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings of the first trial that has one of each kind."""
        first: dict[str, Finding] = {}
        for trial in self.trials:
            for finding in trial.warnings:
                first.setdefault(finding.kind, finding)
        return tuple(first.values())

    @property
    def n_warned(self) -> Counter[str]:
        """In how many trials each kind of finding appeared."""
        return Counter(k for trial in self.trials for k in {f.kind for f in trial.warnings})

    @property
    def headline(self) -> str:
        """What came out, in one sentence."""
        outcome = f"{self.fdp:.1%} of the flagged rows were false alarms, {self.power:.1%} of the"
        outcome += f" novelties were found, on average over {counted(len(self.trials), 'trial')}"
        few = [one.message for one in self.warnings if one.kind == "thin_calibration"]
        if few and not any(trial.n_flagged for trial in self.trials):
            outcome += f"; {few[0]}"
        worst = worst_of(self.warnings)
        return outcome if worst is None else f"{subject(worst)}: {outcome}"

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON types."""
        spread = {what: self.spread(what) for what in ("fdp", "power")}
        by_known = [{"n_known": n} | self.with_known(n).to_dict() for n in self.by_known]
        kept = ("n_known", "fdp", "power", "sd", "standard_error")
        known_rows = [{key: one[key] for key in kept} for one in by_known]
        return {
            "command": "evaluate",
            "level": str(self.level),
            "normal": self.normal,
            "by_order": self.by_order,
            "fdp": self.fdp,
            "power": _plain(self.power),
            "sd": {what: _plain(both[0]) for what, both in spread.items()},
            "standard_error": {what: _plain(both[1]) for what, both in spread.items()},
            "warnings": [finding.to_dict() for finding in self.warnings],
            "n_warned": dict(self.n_warned),
            "trials": [
                trial._replace(warnings=())._asdict()
                | {"fdp": trial.fdp, "power": _plain(trial.power)}
                | {"warnings": sorted({finding.kind for finding in trial.warnings})}
                for trial in self.trials
            ],
        } | ({"by_known": known_rows} if known_rows else {})


def evaluate(
    X: Any,
    label: Any,
    *,
    order: Any = None,
    trials: int | None = None,
    normal: Any = None,
    test_share: Level = "0.3",
    known_share: Level | None = None,
    X_known: Any = None,
    keep: Sequence[str] = (),
    level: Level = 0.1,
    scorer: ScorerLike | str | list[ScorerLike | str] | None = None,
    train_fraction: Level | None = None,
    pi0: str | NullProportion | None = None,
    random_state: RandomState = 0,
    schema: SchemaLike = None,
    on_stage: Callable[[str], None] | None = None,
    on_finding: Callable[[Finding], None] | None = None,
) -> Evaluation:
    """Deal a labelled table into known normals and tests, detect, and count what is right.

    A share of all rows is tested, with their labels hidden. Of the others, the normal ones are
    the known normals. Novelties among them are not used, but with `known_share`.

    Parameters
    ----------
    X : array or frame of shape (n, d)
        The rows.
    label : str or array of shape (n,)
        Which rows are normal: a column of the frame, which is then no feature, or values.
    order : None, "file", str or array of shape (n,)
        None deals the rows at random. Otherwise the last rows are tested, in the order of the
        table, of a column, which is then no feature, or of these values.
    trials : int, optional
        How often: 10 at random, and 1 by order. By order, the tested rows are cut into so many
        consecutive batches, and each is tested against all normal rows before it.
    normal : optional
        The label of normal rows. If not given, it is 0, False, "normal", "benign" or the like.
    test_share : float, str or Fraction
        Share of the rows that is tested.
    known_share : float, str or Fraction, optional
        What are labels worth? Set this share of the novelties aside, which is then never tested,
        and detect with 0, 5, 20 and 100 of them known, as far as there are so many. By order, they
        are novelties before all rows that are tested.
    X_known : array or frame, optional
        Known novelties from elsewhere, in every trial; as of :meth:`conovel.AdaDetect.detect`.
    keep : sequence of str
        Columns that look like an id or another label, but are features.
    level, scorer, train_fraction, pi0, random_state, schema
        As of :class:`conovel.AdaDetect`.
    on_stage : callable, optional
        Told what is going on, for a progress display.
    on_finding : callable, optional
        Called before the first trial with the :class:`conovel.Finding` that calibration rows are
        few, if they are.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows, is_novel = rng.normal(size=(2000, 3)), np.arange(2000) % 20 == 0
    >>> rows[is_novel] += 3
    >>> found = evaluate(rows, is_novel, trials=3, scorer="logistic")
    >>> found.power > 0.9, found.fdp < 0.2
    (True, True)
    """
    tell = _log.info if on_stage is None else as_callback(on_stage, "on_stage")
    note = _log.warning if on_finding is None else as_callback(on_finding, "on_finding")
    rows, values = split_column(X, label, "label")
    is_novel, normal_name = read_label(values, normal)
    keys: NDArray[Any] | None = None
    if isinstance(order, str) and order == "file":
        keys = np.arange(is_novel.size)
    elif order is not None:
        rows, keys = split_column(rows, order, "order")
    if values.shape != is_novel.shape or (keys is not None and keys.shape != is_novel.shape):
        raise SampleError("label and order need one value for each row")
    require_features(rows, is_novel, keep)
    seed, share = as_seed(random_state), as_level(test_share, "test_share")
    usual = 10 if keys is None else 1
    n_trials = as_whole(usual if trials is None else trials, "trials", least=1)
    aside = None if known_share is None else as_level(known_share, "known_share")
    if aside is not None and X_known is not None:
        raise InputError("known_share takes known novelties from the table: leave out X_known")
    deals = list(
        _at_random(is_novel, share, n_trials, seed, aside)
        if keys is None
        else _by_order(is_novel, share, n_trials, order_of(keys), seed, aside)
    )
    numbers = _numbers(min(len(deal.known_rows) for deal in deals))

    def few(finding: Finding) -> None:
        if finding.kind == "thin_calibration":
            note(finding)

    done: dict[int, list[Trial]] = {n: [] for n in numbers}
    for i, deal in enumerate(deals):
        for n in numbers:
            tell(f"trial {i + 1} of {n_trials}" + (f", {n:,} known novelties" if n else ""))
            detector = AdaDetect(scorer, level, train_fraction, pi0, seed + i, schema=schema)
            known_rows = take(rows, deal.known_rows[:n]) if n else X_known
            samples = take(rows, deal.null), take(rows, deal.test)
            with once_warned(i or n):
                result = detector.detect(*samples, known_rows, on_finding=None if i or n else few)
            done[n].append(_counted(result, deal, is_novel))
    by_known = {n: tuple(trials) for n, trials in done.items()}
    of_none = by_known[0]
    return Evaluation(
        of_none,
        as_level(level),
        normal_name,
        keys is not None,
        by_known if aside is not None else {},
    )


def _counted(result: Detection, deal: _Deal, is_novel: NDArray[np.bool_]) -> Trial:
    novel = is_novel[deal.test]
    right = int((result.rejected & novel).sum())
    counts = deal.null.size, deal.test.size, int(novel.sum()), result.n_rejected, right
    return Trial(*counts, result.warnings)


class _Deal(NamedTuple):
    """Places of known normals, of tested rows and of known novelties."""

    null: NDArray[np.intp]
    test: NDArray[np.intp]
    known_rows: NDArray[np.intp]


def _numbers(n_aside: int) -> list[int]:
    """Return how many novelties are known, of so many that are set aside.

    Examples
    --------
    >>> _numbers(0), _numbers(30), _numbers(100)
    ([0], [0, 5, 20, 30], [0, 5, 20, 100])
    """
    return sorted({0, *(min(n, n_aside) for n in NUMBERS_KNOWN)})


def _set_aside(
    novel: NDArray[np.intp], aside: Fraction | None, rng: Sequence[int]
) -> NDArray[np.intp]:
    """Take a share of the novelties at random, in random order."""
    if aside is None:
        return novel[:0]
    n = int(aside * novel.size)
    if not n:
        raise SampleError(
            f"a share of {float(aside):g} of {counted(novel.size, 'novel row')} is none: raise"
            " known_share (--known-share)"
        )
    return np.random.default_rng(rng).permutation(novel)[:n]


def _at_random(
    is_novel: NDArray[np.bool_],
    share: Fraction,
    n_trials: int,
    seed: int,
    aside: Fraction | None = None,
) -> Iterator[_Deal]:
    """Deal the rows at random, in random order."""
    n_test = min(max(int(share * is_novel.size), 1), is_novel.size - 1)
    for i in range(n_trials):
        known_rows = _set_aside(np.flatnonzero(is_novel), aside, [seed, i, 1])
        places = np.random.default_rng([seed, i]).permutation(is_novel.size)
        places = places[~np.isin(places, known_rows)]
        untested = places[n_test:]
        yield _Deal(_some(untested[~is_novel[untested]]), places[:n_test], known_rows)


def _by_order(
    is_novel: NDArray[np.bool_],
    share: Fraction,
    n_trials: int,
    places: NDArray[np.intp],
    seed: int,
    aside: Fraction | None = None,
) -> Iterator[_Deal]:
    """Test the last rows, in consecutive batches, each against all normal rows before it."""
    start = places.size - min(max(int(share * places.size), 1), places.size - 1)
    if places.size - start < n_trials:
        raise SampleError(
            f"{counted(places.size - start, 'row')} to test cannot make {n_trials} batches"
        )
    first = places[:start]
    known_rows = _set_aside(first[is_novel[first]], aside, [seed, 1])
    for batch in np.array_split(np.arange(start, places.size), n_trials):
        earlier = places[: batch[0]]
        yield _Deal(_some(earlier[~is_novel[earlier]]), places[batch], known_rows)


def _some(normals: NDArray[np.intp]) -> NDArray[np.intp]:
    if normals.size < 2:
        raise SampleError("fewer than 2 normal rows are left as known normals: lower test_share")
    return normals


def _plain(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _moments(trials: Sequence[Trial], what: str) -> tuple[float, float, float]:
    """Return mean, standard deviation and standard error of "fdp" or "power" over trials."""
    values = np.array([getattr(trial, what) for trial in trials])
    values = values[np.isfinite(values)]
    mean = float(values.mean()) if values.size else float("nan")
    deviation = float(values.std(ddof=1)) if values.size > 1 else float("nan")
    return mean, deviation, deviation / max(values.size, 1) ** 0.5
