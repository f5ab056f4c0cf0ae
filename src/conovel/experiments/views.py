"""The tables of each experiment: published values, ours with standard errors, the limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from conovel.experiments.limit import QUANTIZATION, QUANTIZED_AT, SHIFT, Published, gaussian_limit
from conovel.experiments.tables import ResultTable, cell_text, estimate, where
from conovel.experiments.tasks import Row

NAMES = {
    "isolated": "B2, isolated",
    "counts": "B3, counts",
    "pooled": "B1, pooled",
    "split": "ME, split",
    "conservative": "conservative ME",
    "full": "full",
    "joint": "joint",
}
PRECISIONS = {
    "float64": "float64",
    "6": "6-bit",
    "4": "4-bit",
    "2": "2-bit",
    "1": "1-bit",
    "compact": "compact",
}
_NOTE = "published ± spread over trials, ours ± standard error"


def views(name: str, rows: Sequence[Row], level: str) -> list[ResultTable]:
    """Return the tables of an experiment, and that of its false discovery rates."""
    tables: list[ResultTable] = []
    for scorer in dict.fromkeys(row["scorer"] for row in rows):
        mine = where(rows, scorer=scorer)
        build = _VIEWS[name] if scorer == "forest" else _DEFAULTS.get(name, _VIEWS[name])
        tables += build(mine)
    return [*tables, false_discoveries(rows, level)]


def false_discoveries(rows: Sequence[Row], level: str) -> ResultTable:
    """Return the cells with the largest false discovery rates; all should be within the level."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        shift = "" if row["shift"] is None else f"δ = {row['shift']:g}"
        place = f"{row['data']} {shift}".strip()
        if len({row["agents"] for row in rows}) > 1:
            place += f", K = {row['agents']}"
        names = (place, row["scorer"], _cell_name(row["regime"], row["composite"]))
        groups.setdefault((*names, row["precision"]), []).append(row["fdp"])
    rates = {key: estimate(values) for key, values in groups.items()}
    worst = sorted(rates, key=lambda key: -rates[key].mean)[:5]
    excess = {
        key: f"{(e.mean - _number(level)) / e.error:+.1f}" if e.error > 0 else ""
        for key, e in rates.items()
    }
    return ResultTable(
        f"Largest false discovery rates of {len(rates)} cells, level {_number(level):g}",
        ("data", "scorer", "regime", "precision", "FDR", "standard errors above the level"),
        tuple((*key, str(rates[key]), excess[key]) for key in worst),
    )


def _shift(rows: Sequence[Row]) -> list[ResultTable]:
    return [
        _published_sweep("Power: shift sweep", rows, "power", ("isolated", "counts", "split")),
        _published_sweep("FDR: shift sweep", rows, "fdp", ("isolated", "counts", "split")),
        _sweep(
            "Power (FDR) of what the paper has not: shift sweep",
            rows,
            "shift",
            skip=(("isolated", ""), ("counts", ""), ("split", "max")),
        ),
    ]


def _conservative_shift(rows: Sequence[Row]) -> list[ResultTable]:
    table = []
    for shift in _sorted(rows, "shift"):
        mine = where(rows, shift=shift, composite="max")
        published = SHIFT["conservative"].get(shift)
        table.append((f"{shift:g}", *_beside(published, mine), _limit(shift)))
    return [
        ResultTable(
            f"Conservative model exchange (max): shift sweep; {_NOTE}",
            ("δ", *_BESIDE, "limit"),
            tuple(table),
        ),
        _sweep(
            "Power (FDR) with other composites", rows, "shift", skip=(("conservative", "max"),)
        ),
    ]


def _quantization(rows: Sequence[Row]) -> list[ResultTable]:
    return _precisions(rows, "split", "Quantization sweep, δ = 2, split (max)")


def _conservative_quantization(rows: Sequence[Row]) -> list[ResultTable]:
    title = "Conservative model exchange: quantization sweep, δ = 2 (max)"
    return _precisions(rows, "conservative", title)


def _precisions(rows: Sequence[Row], regime: str, title: str) -> list[ResultTable]:
    table = []
    for baseline in ("isolated", "counts", "pooled"):
        if mine := where(rows, regime=baseline):
            published = QUANTIZATION.get(baseline, {}).get("")
            table.append((NAMES[baseline], *_beside(published, mine)))
    present = [p for p in PRECISIONS if where(rows, precision=p)]
    for precision in present:
        mine = where(rows, regime=regime, composite="max", precision=precision)
        published = QUANTIZATION[regime].get(precision)
        table.append((PRECISIONS[precision], *_beside(published, mine)))
    pairs = _pairs(rows, skip=((regime, "max"),))
    other = tuple(
        (
            PRECISIONS[p],
            *(
                cell_text(where(rows, regime=r, composite=c, precision=p), "both")
                for r, c in pairs
                if c
            ),
        )
        for p in present
    )
    heads = (_cell_name(r, c) for r, c in pairs if c)
    limit = _limit(QUANTIZED_AT)
    if (scorer := rows[0]["scorer"]) != "forest":
        title = f"{title}, scorer {scorer}"
    return [
        ResultTable(f"{title}; limit {limit}; {_NOTE}", ("precision", *_BESIDE), tuple(table)),
        ResultTable("Power (FDR) with other composites and regimes", ("precision", *heads), other),
    ]


def _agents(rows: Sequence[Row]) -> list[ResultTable]:
    scorer = rows[0]["scorer"]
    return [
        _sweep(
            f"Power (FDR) against the number of agents, δ = {shift:g}, {scorer}",
            where(rows, shift=shift),
            "agents",
        )
        for shift in _sorted(rows, "shift")
    ]


def _real(rows: Sequence[Row]) -> list[ResultTable]:
    tables = []
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = where(rows, data=data)
        table = tuple(
            (
                _cell_name(r, c),
                cell_text(cell := where(mine, regime=r, composite=c), "fdp"),
                cell_text(cell, "power"),
                _kilobits(cell, "paper_bits"),
                _kilobits(cell, "model_bytes", 8),
            )
            for r, c in _pairs(mine)
        )
        title = f"{data}: {_n_trials(mine)} repetitions, {mine[0]['scorer']}"
        heads = ("regime", "FDR", "power", "kilobits, paper's formula", "kilobits of models, wire")
        tables.append(ResultTable(title, heads, table))
    return tables


def _grid(rows: Sequence[Row]) -> list[ResultTable]:
    """Return the mean difference of our power from the published, by setting of the forest."""
    table = []
    for setting in dict.fromkeys(
        (row["depth"], row["trees"], row["train_fraction"]) for row in rows
    ):
        depth, trees, fraction = setting
        mine = where(rows, depth=depth, trees=trees, train_fraction=fraction)
        cells = [str(depth or "none"), str(trees), fraction]
        for regime in ("isolated", "counts", "split", "conservative"):
            by_shift = {s: where(mine, regime=regime, shift=s) for s in _sorted(mine, "shift")}
            power = {s: estimate(r["power"] for r in cell) for s, cell in by_shift.items()}
            gap = np.mean([e.mean - SHIFT[regime][s].power[0] for s, e in power.items()])
            cells.append(" ".join(f"{e.mean:.3f}" for e in power.values()) + f" ({gap:+.3f})")
        for regime in ("split", "conservative"):
            cells.append(_kilobits(where(mine, regime=regime, shift=2.0), "paper_bits"))
        table.append(tuple(cells))
    shifts = ", ".join(f"{s:g}" for s in _sorted(rows, "shift"))
    regimes = ("isolated", "counts", "split", "conservative")
    published = [
        " ".join(f"{SHIFT[regime][s].power[0]:.3f}" for s in _sorted(rows, "shift"))
        for regime in regimes
    ]
    kilobits = [
        f"{p.kilobits[0]:,.0f}"
        for r in ("split", "conservative")
        if (p := QUANTIZATION[r]["float64"]).kilobits
    ]
    heads = ("depth", "trees", "train", *(f"{NAMES[r]} (mean gap)" for r in regimes))
    return [
        ResultTable(
            f"Power at δ = {shifts} for settings that the paper leaves open, max,"
            f" {_n_trials(rows)} trials; kilobits by the paper's formula at δ = 2",
            (*heads, "split: kilobits", "conservative: kilobits"),
            (("published", "", "", *published, *kilobits), *table),
        )
    ]


def _default_sweep(rows: Sequence[Row]) -> list[ResultTable]:
    return [_sweep("conovel's own defaults: power (FDR)", rows, "shift")]


_VIEWS: Mapping[str, Callable[[Sequence[Row]], list[ResultTable]]] = {
    "shift": _shift,
    "conservative-shift": _conservative_shift,
    "quantization": _quantization,
    "conservative-quantization": _conservative_quantization,
    "agents": _agents,
    "real": _real,
    "grid": _grid,
}
_DEFAULTS = dict.fromkeys(("shift", "conservative-shift"), _default_sweep)
_BESIDE = (
    "FDR published",
    "FDR",
    "power published",
    "power",
    "kilobits published",
    "kilobits, paper's formula",
    "kilobits of models, wire",
)


def _beside(published: Published | None, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return published and own figures of one cell, next to each other."""
    fdr, power, kilobits = published or (None, None, None)
    return (
        _spread(fdr),
        cell_text(rows, "fdp"),
        _spread(power),
        cell_text(rows, "power"),
        "" if kilobits is None else f"{kilobits[0]:,}",
        _kilobits(rows, "paper_bits"),
        _kilobits(rows, "model_bytes", 8),
    )


def _published_sweep(
    title: str, rows: Sequence[Row], what: str, regimes: Sequence[str]
) -> ResultTable:
    table = []
    for shift in _sorted(rows, "shift"):
        cells = [f"{shift:g}"]
        for regime in regimes:
            published = SHIFT[regime].get(shift)
            composite = "max" if regime == "split" else ""
            mine = where(rows, shift=shift, regime=regime, composite=composite)
            value = published and (published.power if what == "power" else published.fdr)
            cells += [_spread(value), cell_text(mine, what)]
        table.append((*cells, *([_limit(shift)] if what == "power" else [])))
    names = [NAMES[regime] + (" (max)" if regime == "split" else "") for regime in regimes]
    heads = [head for name in names for head in (f"{name}: published", "ours")]
    last = ("limit",) if what == "power" else ()
    return ResultTable(f"{title}; {_NOTE}", ("δ", *heads, *last), tuple(table))


def _sweep(
    title: str, rows: Sequence[Row], by: str, skip: Sequence[tuple[str, str]] = ()
) -> ResultTable:
    """Return power (FDR) of every regime and composite, row by row for the values of `by`."""
    pairs = _pairs(rows, skip)
    table = tuple(
        (
            f"{value:g}",
            *(
                cell_text(where(rows, **{by: value}, regime=r, composite=c), "both")
                for r, c in pairs
            ),
            *([_limit(value)] if by == "shift" else []),
        )
        for value in _sorted(rows, by)
    )
    heads = ({"shift": "δ", "agents": "K"}[by], *(_cell_name(r, c) for r, c in pairs))
    return ResultTable(title, (*heads, *(["limit"] if by == "shift" else [])), table)


def _pairs(rows: Sequence[Row], skip: Sequence[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """Return the regimes and composites that occur, in the order of the tasks."""
    seen = dict.fromkeys((row["regime"], row["composite"]) for row in rows)
    return [pair for pair in seen if pair not in skip]


def _sorted(rows: Sequence[Row], column: str) -> list[float]:
    return sorted({row[column] for row in rows})


def _cell_name(regime: str, composite: str) -> str:
    return f"{NAMES[regime]}, {composite}" if composite else NAMES[regime]


def _limit(shift: float) -> str:
    return f"{gaussian_limit(shift).common:.4f}"


def _spread(value: tuple[float, float] | None) -> str:
    return "" if value is None else f"{value[0]:.3f} ± {value[1]:.2f}"


def _kilobits(rows: Sequence[Row], column: str, factor: int = 1) -> str:
    mean = estimate(row[column] for row in rows).mean
    return "" if np.isnan(mean) else f"{mean * factor / 1000:,.1f}"


def _n_trials(rows: Sequence[Row]) -> int:
    return len({row["trial"] for row in rows})


def _number(level: str) -> float:
    from conovel.stats.levels import as_level  # noqa: PLC0415

    return float(as_level(level))
