"""Mistakes that are seen in the columns: a row number, a label, changed units, a constant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from conovel.rows.tables import chance_of_none
from conovel.spec.findings import Finding, named, percent
from conovel.spec.schema import missing_feature
from conovel.stats.words import listed

_FEWEST_ROWS = 20  # in fewer rows, distinct or ordered numbers say little
_DENSE = 4  # row numbers fill at least a quarter of their range
_FEW_VALUES = 20  # a label has at most so many values
_MOST_SPELLED = 3  # values that a message spells out
_UNITS = 300.0  # a thousandfold, with room for chance
_ID_NAME = re.compile(r"(^|[\s_.\-])(id|ids|uid|uuid|guid|key|index|row|rowid|nr|no)$", re.I)
_CAMEL_ID = re.compile(r"[a-z]I[Dd]$")
_LABEL_NAME = re.compile(
    r"(^|[\s_.\-])(labels?|target|class|y|truth|outcome|anomal\w*|outliers?|novel\w*|frauds?"
    r"|attacks?|faults?|failures?|defects?|malicious|intrusion|abnormal\w*|incidents?"
    r"|change[\s_.\-]?points?)$",
    re.IGNORECASE,
)
_BY_CHANCE = 0.01  # likelier, a column of few values has them all in one sample
_MOST_MOVED = 0.25  # more novelties than this are seldom
LIKELY = 1e-3  # with a greater chance, columns are alike in the known normals by accident
_EXCLUDE = "leave it out with --exclude {name!r}, or drop it before the call"

Matrix = NDArray[np.float64]


def column_findings(
    null: Matrix,
    test: Matrix,
    names: Sequence[str],
    sources: Sequence[str] | None = None,
    n_rows: int = 0,
) -> list[Finding]:
    """Look at each column of both samples by itself."""
    times = Counter(sources or names)
    single = [
        finding
        for j, name in enumerate(sources or names)
        if times[name] == 1
        for finding in _of_column(null[:, j], test[:, j], str(name), n_rows)
    ]
    ends = [f((f(null, axis=0), f(test, axis=0)), axis=0) for f in (np.min, np.max)]
    varied = {name for name, low, high in zip(sources or names, *ends, strict=True) if low < high}
    gone = list(_without_values(null, test, names, sources or names))
    named_columns = {name for finding in gone for name in finding.columns}
    several = [
        str(name)
        for name, n in times.items()
        if n > 1 and name not in varied and name not in named_columns
    ]
    findings = [*single, *gone, *map(_constant, several)]
    explained = {name for finding in findings for name in finding.columns}
    shared = (test == null[0]).any(axis=0)  # most columns need no closer look
    rest = {
        str(name): None
        for j, name in enumerate(sources or names)
        if str(name) not in explained and not (shared[j] and times[name] == 1)
    }
    apart = (_disjoint(null, test, names, sources or names, name) for name in rest)
    return [*findings, *filter(None, apart)]


def batch_findings(test: Matrix, names: Sequence[str], sources: Sequence[str]) -> list[Finding]:
    """Look at the columns of a batch by itself: a kept detector has no known normals."""
    return [
        _missing(name, f"{named(name)} has no value in any of the test rows")
        for j, name in _indicators(names, sources)
        if test[:, j].all()
    ]


def _indicators(names: Sequence[str], sources: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Give the features that tell where values are missing, each with its column."""
    for j, (feature, name) in enumerate(zip(names, sources, strict=True)):
        # A plain number is a feature of the same name.
        if feature != name and feature == missing_feature(name):
            yield j, str(name)


def _missing(name: str, message: str) -> Finding:
    fix = f"find out why it is missing, or {_EXCLUDE.format(name=name)}"
    return Finding("missing", message, fix, (name,))


def _without_values(
    null: Matrix, test: Matrix, names: Sequence[str], sources: Sequence[str]
) -> Iterator[Finding]:
    """Find columns without any value in a sample: the feature that tells so is always on."""
    for j, name in _indicators(names, sources):
        gone = bool(null[:, j].all()), bool(test[:, j].all())
        if all(gone):
            message = f"{named(name)} has no value in either sample and tells nothing here"
            fix = f"nothing, if other rows have values; or {_EXCLUDE.format(name=name)}"
            yield Finding("constant", message, fix, (name,))
        elif any(gone):
            empty, held = (null, test)[:: 1 if gone[0] else -1]
            n_present = len(held) - int(held[:, j].sum())
            if chance_of_none(len(empty), len(held), n_present) > _BY_CHANCE:
                continue
            here, there = ("known normals", "test rows")[:: 1 if gone[0] else -1]
            seen = f"has no value in any of the {here}, and has values in the {there}"
            yield _missing(name, f"{named(name)} {seen}")


def few_values(null: Matrix, test: Matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Give the values of a column numbers, by its features; None if they are not few."""
    if min(len(null), len(test)) < _FEWEST_ROWS or null.shape[1] > _FEW_VALUES:
        return None
    some = np.unique(test, axis=0)  # most columns need no closer look
    if len(some) > _FEW_VALUES:
        return None
    values, places = np.unique(np.concatenate([null, test]), axis=0, return_inverse=True)
    if not 1 < len(values) <= min(_FEW_VALUES, (len(null) + len(test)) // 4):
        return None
    places = places.ravel()
    return places[: len(null)], places[len(null) :]


def shares_apart(null: NDArray[np.intp], test: NDArray[np.intp]) -> float:
    """Return which share of the rows would have to change its value to make the shares equal.

    Examples
    --------
    >>> shares_apart(np.array([0, 0, 0, 1]), np.array([0, 1, 1, 1]))
    0.5
    """
    n_values = 1 + max(null.max(), test.max())
    shares = [np.bincount(values, minlength=n_values) / values.size for values in (null, test)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def mix_finding(
    null: Matrix,
    test: Matrix,
    names: Sequence[str],
    sources: Sequence[str],
    mistakes: Sequence[Finding],
) -> Finding | None:
    """Find a column of few values with other shares in the test rows than in the known normals.

    Columns with other mistakes are passed over.

    Novelties that are a share π of the test rows move the shares by at most π. Allowed is π = 1/4,
    and what chance adds: of k values, about √(k(1/n + 1/m))/2 on average.
    """
    worst: tuple[float, str, str] | None = None
    explained = {name for finding in mistakes for name in finding.columns}
    for name in dict.fromkeys(sources):
        if name in explained:
            continue
        features = [j for j, source in enumerate(sources) if source == name]
        values = few_values(null[:, features], test[:, features])
        if values is None:
            continue
        moved, k = shares_apart(*values), 1 + max(part.max() for part in values)
        chance = float(np.sqrt(k * (1 / len(null) + 1 / len(test))))
        if moved <= _MOST_MOVED + chance or (worst and moved <= worst[0]):
            continue
        counts = [np.bincount(part, minlength=k) / part.size for part in values]
        most = int(np.abs(counts[0] - counts[1]).argmax())
        holder = null[values[0] == most] if (values[0] == most).any() else test[values[1] == most]
        spelled = _spelled(holder[0, features], names, features)
        parts = [percent(round(float(part[most]), 2)) for part in counts]
        seen = f"{spelled} is {parts[0]} of the known normals and {parts[1]} of the test rows"
        worst = moved, str(name), seen
    if worst is None:
        return None
    moved, name, seen = worst
    message = f"the values of {named(name)} have other shares: {seen}"
    return Finding("drift", message, "", (name,), numbers={"moved": moved})


def _disjoint(
    null: Matrix, test: Matrix, names: Sequence[str], sources: Sequence[str], name: str
) -> Finding | None:
    """Find a column of few values, none of which is in both samples.

    If the rows are exchangeable and k values occur, the chance is at most 2^k / C(n + m, n):
    each value is in one sample as a whole.
    """
    features = [j for j, source in enumerate(sources) if str(source) == name]
    values = []
    for sample in (null, test):
        if len(sample) < _FEWEST_ROWS or len(features) > _FEW_VALUES:
            return None
        some = np.unique(sample[:, features], axis=0)
        # Values that are few among the rows occur several times.
        if len(some) > min(_FEW_VALUES, len(sample) // 4):
            return None
        values.append(some)
    if len(np.unique(np.concatenate(values), axis=0)) < sum(map(len, values)):
        return None
    normals, new = ([_spelled(row, names, features) for row in some] for some in values)
    return Finding(
        "values",
        f"no value of {named(name)} is in both samples: the known normals have"
        f" {listed(normals, _MOST_SPELLED)}, and the test rows {listed(new, _MOST_SPELLED)}",
        "write its values in the same way in both samples, or leave it out with"
        f" --exclude {name!r}",
        (name,),
    )


def _spelled(row: NDArray[np.float64], names: Sequence[str], features: Sequence[int]) -> str:
    """Write a value that became one number, or one of several features."""
    if len(features) == 1:
        return f"{row[0]:.6g}"
    here = [j for j, is_on in zip(features, row.tolist(), strict=True) if is_on]
    held = [names[j].partition("=")[2] or names[j] for j in here]
    return held[0] if held else "other"


def looks_like_id(values: NDArray[np.float64], name: str, n_rows: int = 0) -> bool:
    """Tell whether whole numbers are the names or the places of rows.

    They are all different, and besides that dense in their range, or in order, or the column is
    called id or the like. Numbers with decimals are never taken for ids. `n_rows` is the number
    of all rows, if the values are of some of them.
    """
    if values.size < _FEWEST_ROWS or not np.array_equal(values, np.floor(values)):
        return False
    if np.unique(values).size < values.size:
        return False
    is_dense = float(np.ptp(values)) < _DENSE * max(n_rows, values.size)
    steps = np.diff(values)
    is_ordered = bool((steps > 0).all() or (steps < 0).all())
    return is_dense or is_ordered or is_called_id(name)


def is_called_id(name: str) -> bool:
    """Tell whether a column is called id or the like.

    Examples
    --------
    >>> [is_called_id(name) for name in ("id", "user_id", "userId", "row", "grid", "humid")]
    [True, True, True, True, False, False]
    """
    return bool(_ID_NAME.search(name) or _CAMEL_ID.search(name))


def _of_column(
    null: NDArray[np.float64], test: NDArray[np.float64], name: str, n_rows: int
) -> Iterator[Finding]:
    ends = null.min(), null.max(), test.min(), test.max()
    if min(ends) == max(ends):
        yield _constant(name)
        return
    if looks_like_id(np.concatenate([null, test]), name, n_rows) or (
        looks_like_id(null, name, n_rows) and _all_differ(test)
    ):
        yield Finding(
            "id",
            f"{named(name)} looks like a row number or an id: all its values are different"
            f" whole numbers, from {min(ends):.10g} to {max(ends):.10g}",
            f"name it with --id {name!r} or ids=, so that it is no feature, or leave it out with"
            f" --exclude {name!r}",
            (name,),
            numbers={"null_low": ends[0], "test_low": ends[2]},
        )
        return
    if (ratio := scale_ratio(null, test)) is not None and max(ratio, 1 / ratio) >= _UNITS:
        times = f"{max(ratio, 1 / ratio):,.0f} times {'larger' if ratio > 1 else 'smaller'}"
        yield Finding(
            "units",
            f"the values of {named(name)} are {times} in the test rows than in the known normals",
            "give both samples the same unit",
            (name,),
            numbers={"ratio": ratio},
        )


def _constant(name: str) -> Finding:
    message = f"{named(name)} never changes in either sample and tells nothing"
    return Finding("constant", message, _EXCLUDE.format(name=name), (name,))


def _all_differ(values: NDArray[np.float64]) -> bool:
    return np.unique(values).size == values.size and np.array_equal(values, np.floor(values))


def scale_ratio(null: NDArray[np.float64], test: NDArray[np.float64]) -> float | None:
    """Return how many times larger test values are: a ratio of medians of sizes.

    None where most values of a sample are zero: then few values would decide.

    Examples
    --------
    >>> scale_ratio(np.array([1.0, 2.0, 3.0]), np.array([1000.0, 2000.0, 5000.0]))
    1000.0
    """
    medians = []
    for values in (null, test):
        sizes = np.abs(values[values != 0])
        if sizes.size * 2 <= values.size:
            return None
        medians.append(float(np.median(sizes)))
    return medians[1] / medians[0]


def is_called_label(name: str) -> bool:
    """Tell whether a column is called a label or the like.

    Examples
    --------
    >>> [is_called_label(name) for name in ("is_fraud", "changepoint", "sex", "classic")]
    [True, True, False, False]
    """
    return bool(_LABEL_NAME.search(name))


def label_finding(
    null: Matrix,
    test: Matrix,
    rejected: NDArray[np.bool_],
    names: Sequence[str],
    sources: Sequence[str] | None = None,
) -> Finding | None:
    """Find a label among the columns: constant in the known normals, and the flags repeat it."""
    n_rejected = int(rejected.sum())
    for name, value, differs in _varying(null, test, names, sources) if n_rejected else ():
        both, n_differs = int((differs & rejected).sum()), int(differs.sum())
        if chance_of_none(len(null), len(test), n_differs) > LIKELY:
            continue
        # False alarms are among the flagged rows.
        if both * 10 >= 7 * n_rejected and both * 10 >= 9 * n_differs:
            seen = f"{both:,} of the {n_rejected:,} flagged rows are those in which it differs"
            return _label(name, value, seen, {"differs": n_differs, "flagged": n_rejected})
    return None


def named_label_findings(
    null: Matrix, test: Matrix, names: Sequence[str], sources: Sequence[str] | None = None
) -> list[Finding]:
    """Find columns called a label, constant in the known normals, and varying in the tests."""
    return [
        _label(
            name,
            value,
            f"it differs in {int(differs.sum()):,} of {differs.size:,} test rows",
            {"differs": int(differs.sum())},
        )
        for name, value, differs in _varying(null, test, names, sources)
        if is_called_label(name)
    ]


def _varying(
    null: Matrix, test: Matrix, names: Sequence[str], sources: Sequence[str] | None
) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Give columns that are constant in the known normals and have few other values in the tests.

    Each with its value in the known normals, and the test rows that have another one.
    """
    constant = np.ptp(null, axis=0) == 0
    varies = constant & (test != null[0]).any(axis=0)
    columns = list(sources or names)
    for name in dict.fromkeys(columns[j] for j in np.flatnonzero(varies).tolist()):
        features = [j for j, column in enumerate(columns) if column == name]
        if not constant[features].all():
            continue
        other = (test[:, features] != null[0, features]).any(axis=1)
        if len(features) == 1:
            if np.unique(test[:, features[0]]).size > _FEW_VALUES:
                continue
            yield str(name), f"{null[0, features[0]]:.6g}", other
        else:  # a category, of which the known normals have one level
            held = [names[j] for j in features if null[0, j] == 1]
            yield str(name), held[0].partition("=")[2] if held else "the same", other


def _label(name: str, value: str, seen: str, numbers: dict[str, float]) -> Finding:
    message = f"{named(name)} is {value} in all known normals, and {seen}"
    if is_called_label(name):
        fix, message = _EXCLUDE.format(name=name), f"{message}: it looks like a label"
        return Finding("label", message, fix, (name,), numbers=numbers)
    # Values cannot tell a label from a kind of rows that the known normals lack, such as a sex.
    fix = f"add known normals with its other values, or {_EXCLUDE.format(name=name)}"
    return Finding("one_value", message, fix, (name,), numbers=numbers)
