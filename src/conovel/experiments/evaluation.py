"""What would have been found? One labelled table, dealt into known normals and tests.

It gives realised false alarms and power on past data, with their spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conovel.errors import ColumnError, InputError, SampleError
from conovel.rows.samples import as_frame
from conovel.rows.schemas import SchemaLike
from conovel.runs.check_order import order_of, take
from conovel.runs.detector import AdaDetect
from conovel.runs.repeats import once_warned
from conovel.scorers.estimators import ScorerLike
from conovel.site.checks.columns import looks_like_id
from conovel.spec.findings import Finding, subject, worst_of
from conovel.stats.levels import Level, RandomState, as_callback, as_level, as_seed, as_whole
from conovel.stats.null_proportion import NullProportion
from conovel.stats.ranks import as_array
from conovel.stats.words import counted, not_there


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

    See Also
    --------
    conovel.evaluate : Makes it.
    """

    trials: tuple[Trial, ...]
    level: Fraction
    normal: str
    by_order: bool

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
        values = np.array([getattr(trial, what) for trial in self.trials])
        values = values[np.isfinite(values)]
        deviation = float(values.std(ddof=1)) if values.size > 1 else float("nan")
        return deviation, deviation / max(values.size, 1) ** 0.5

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
        worst = worst_of(self.warnings)
        return outcome if worst is None else f"{subject(worst)}: {outcome}"

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON types."""
        spread = {what: self.spread(what) for what in ("fdp", "power")}
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
        }


def evaluate(
    X: Any,
    label: Any,
    *,
    order: Any = None,
    trials: int | None = None,
    normal: Any = None,
    test_share: Level = "0.3",
    keep: Sequence[str] = (),
    level: Level = 0.1,
    scorer: ScorerLike | str | list[ScorerLike | str] | None = None,
    train_fraction: Level | None = None,
    pi0: str | NullProportion | None = None,
    random_state: RandomState = 0,
    schema: SchemaLike = None,
    on_stage: Callable[[str], None] | None = None,
) -> Evaluation:
    """Deal a labelled table into known normals and tests, detect, and count what is right.

    A share of all rows is tested, with their labels hidden. Of the others, the normal ones are
    the known normals. Novelties among them are not used.

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
    keep : sequence of str
        Columns that look like an id or another label, but are features.
    level, scorer, train_fraction, pi0, random_state, schema
        As of :class:`conovel.AdaDetect`.
    on_stage : callable, optional
        Told what is going on, for a progress display.

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
    tell = as_callback(on_stage, "on_stage")
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
    deals = (
        _at_random(is_novel, share, n_trials, seed)
        if keys is None
        else _by_order(is_novel, share, n_trials, order_of(keys))
    )
    done = []
    for i, (null, test) in enumerate(deals):
        tell(f"trial {i + 1} of {n_trials}")
        detector = AdaDetect(scorer, level, train_fraction, pi0, seed + i, schema=schema)
        with once_warned(i):
            result = detector.detect(take(rows, null), take(rows, test))
        novel = is_novel[test]
        right = int((result.rejected & novel).sum())
        counts = (null.size, test.size, int(novel.sum()), result.n_rejected, right)
        done.append(Trial(*counts, result.warnings))
    return Evaluation(tuple(done), as_level(level), normal_name, keys is not None)


def _at_random(
    is_novel: NDArray[np.bool_], share: Fraction, n_trials: int, seed: int
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Deal the rows at random, in random order."""
    n_test = min(max(int(share * is_novel.size), 1), is_novel.size - 1)
    for i in range(n_trials):
        places = np.random.default_rng([seed, i]).permutation(is_novel.size)
        untested = places[n_test:]
        yield _some(untested[~is_novel[untested]]), places[:n_test]


def _by_order(
    is_novel: NDArray[np.bool_], share: Fraction, n_trials: int, places: NDArray[np.intp]
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Test the last rows, in consecutive batches, each against all normal rows before it."""
    start = places.size - min(max(int(share * places.size), 1), places.size - 1)
    if places.size - start < n_trials:
        raise SampleError(
            f"{counted(places.size - start, 'row')} to test cannot make {n_trials} batches"
        )
    for batch in np.array_split(np.arange(start, places.size), n_trials):
        earlier = places[: batch[0]]
        yield _some(earlier[~is_novel[earlier]]), places[batch]


def _some(normals: NDArray[np.intp]) -> NDArray[np.intp]:
    if normals.size < 2:
        raise SampleError("fewer than 2 normal rows are left as known normals: lower test_share")
    return normals


def _plain(number: float) -> float | None:
    return number if np.isfinite(number) else None


_NORMAL = ("0", "0.0", "false", "normal", "benign", "no", "ok", "none", "inlier")
_FEW_VALUES = 50  # a label has at most so many values


def split_column(X: Any, which: Any, what: str) -> tuple[Any, NDArray[Any]]:
    """Take a column out of a frame, by name; values that are given are only checked."""
    if not isinstance(which, str):
        return X, as_array(which, what)
    frame = as_frame(X, "X")
    if frame is None or which not in frame.columns:
        has = "" if frame is None else f": {not_there(which, frame.columns)}"
        raise ColumnError(f"{what}: there is no column {which!r}{has}")
    return frame.drop(which).to_native(), frame[which].to_numpy()


def read_label(values: NDArray[Any], normal: Any) -> tuple[NDArray[np.bool_], str]:
    """Tell which rows are novel, and the label of the others."""
    if values.ndim != 1 or not values.size:
        raise SampleError("label needs one value for each row")
    texts = np.array([str(value).strip() for value in values.tolist()])
    missing = np.isin(np.char.lower(texts), ["", "nan", "none", "null", "<na>", "nat"])
    distinct, counts = np.unique(texts[~missing], return_counts=True)
    if missing.any() and "none" not in map(str.lower, distinct.tolist()):
        raise InputError(
            f"label is missing in {counted(int(missing.sum()), 'row')}: fill it in, or drop"
            " these rows"
        )
    if len(distinct) < 2:
        raise InputError("label has a single value: there must be normal rows and novelties")
    if normal is None:
        hits = [name for name in distinct.tolist() if name.lower() in _NORMAL]
        if len(hits) != 1:
            listed = ", ".join(map(repr, distinct[np.argsort(-counts)][:8].tolist()))
            raise InputError(
                f"label has the values {listed}: say with normal= or --normal which is normal"
            )
        normal = hits[0]
    name = str(normal).strip()
    if name not in distinct:
        raise InputError(f"no row has the label {name!r}: say which value normal rows have")
    return texts != name, name


def require_features(rows: Any, is_novel: NDArray[np.bool_], keep: Sequence[str] = ()) -> None:
    """Refuse columns that are ids or further labels, in one message with the option to drop them.

    Examples
    --------
    >>> require_features(np.array([[i, i % 5] for i in range(100)]), np.arange(100) % 5 == 1)
    Traceback (most recent call last):
    ...
    conovel.errors.ColumnError: '0' looks like an id: leave out with --exclude '0', or ...
    """
    ids, labels = [], []
    for name, values in _columns(rows):
        if name in keep:
            continue
        if _is_id(values, name):
            ids.append(name)
        elif _is_label(values, is_novel):
            labels.append(name)
    if not ids and not labels:
        return
    reasons = [
        f"{', '.join(map(repr, names))} {'look' if len(names) > 1 else 'looks'} like {what}"
        for names, what in (
            (ids, "ids" if len(ids) > 1 else "an id"),
            (labels, "further labels" if len(labels) > 1 else "a further label"),
        )
        if names
    ]
    columns = ",".join(f'"{name}"' if "," in name else name for name in (*ids, *labels))
    raise ColumnError(
        f"{' and '.join(reasons)}: leave out with --exclude '{columns}', or use as features with"
        f" --keep '{columns}'"
    )


def _columns(rows: Any) -> Iterator[tuple[str, nw.Series[Any]]]:
    frame = as_frame(rows, "X")
    if frame is None:
        array = np.asarray(rows)
        if array.ndim != 2:
            return  # the detection says what is wrong
        frame = nw.from_dict(
            {str(j): array[:, j] for j in range(array.shape[1])}, backend="pyarrow"
        )
    for j, name in enumerate(frame.columns):
        yield str(name), frame[:, j]


def _is_id(values: nw.Series[Any], name: str) -> bool:
    if values.dtype.is_integer() or values.dtype.is_float():
        numbers = values.cast(nw.Float64).to_numpy()
        return bool(np.isfinite(numbers).all()) and looks_like_id(numbers, name)
    is_text = values.dtype in (nw.String, nw.Object, nw.Categorical)
    return is_text and len(values) >= 20 and values.n_unique() == len(values)


def _is_label(values: nw.Series[Any], is_novel: NDArray[np.bool_]) -> bool:
    """Tell whether a column has one value in all normal rows and others in novelties."""
    # Numbers must have two values, or tell all novelties: counts of rare events are 0 in normals.
    if values.n_unique() > _FEW_VALUES:
        return False
    texts = np.array([str(value) for value in values.to_list()])
    of_normals = np.unique(texts[~is_novel])
    if of_normals.size != 1:
        return False
    differs = texts != of_normals[0]
    is_text = values.dtype in (nw.String, nw.Object, nw.Categorical)
    n_values = np.unique(texts).size
    tells_all = bool((differs == is_novel).all())
    return n_values > 1 and (tells_all or is_text or _is_flag(values, n_values))


def _is_flag(values: nw.Series[Any], n_values: int) -> bool:
    if values.dtype == nw.Boolean:
        return True
    if not values.dtype.is_numeric() or n_values != 2:
        return False
    return {0.0, 1.0} == set(map(float, values.unique().to_list()))
