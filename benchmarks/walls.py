"""What a peer's model finds out about one person, and what stopping it costs in power.

    python -m benchmarks walls [--people 20] [--draws 6]

The attack: a site of two sends a model that is high in a small box around a person, and the
coordinator looks for a row that is alone in the highest cell. The price: the same network with
`min_group_rows=1` and with what sites have by default.
"""

import argparse
from fractions import Fraction

import numpy as np

import conovel as cn
from conovel.experiments.gaussian import Labelled, gaussian_design
from conovel.models.wire import schema_digest
from conovel.rows.pairs import read_pair
from conovel.scorers.argument import as_candidates
from conovel.site.site import Site
from conovel.site.work import SiteWork
from conovel.spec.run_spec import RunSpec
from tests.support.spikes import spike_model

SIZES = [(1000, 333), (333, 111), (100, 33), (30, 10)]  # known normals and tests of the site
WALLS = {"k = 1": {"group_rows": 1}, "default": {}}


def cells_of(rows: Labelled, model: bytes, seed: int, **walls: int) -> np.ndarray:
    """Return the rows in each cell that a site would send after it got a model."""
    spec = RunSpec.of(regime="joint", composite="max", seed=seed)
    work = SiteWork(spec, tuple(as_candidates("logistic", seed)), 2, **walls)
    site = Site(*read_pair(rows.X_null, rows.X_test, None, shares_schema=True), work)
    site.models(0, ["bank", "peer"], Fraction(1, 3))
    site.ranks({"peer": model})
    found = site.count_cells()
    return found.calibration + found.tests


def attack(n_null: int, n_test: int, n_people: int) -> None:
    """Print how many people are found, present and absent, and how many cells hold one row."""
    for name, walls in WALLS.items():
        found, alone, smallest = {True: 0, False: 0}, [], n_null
        for seed in range(n_people):
            for is_present in (True, False):
                (rows,) = gaussian_design(
                    0.0, seed, n_agents=1, n_null=n_null, n_test=n_test, null_share=1.0
                )
                person = np.random.default_rng([seed, 1]).normal(size=rows.X_test.shape[1])
                if is_present:
                    rows.X_test[0] = person
                schema = schema_digest(tuple(map(str, range(person.size))), 4)
                model = spike_model(person, schema, top=[1.0] * 8)
                cells = cells_of(rows, model, seed, **walls)
                first, *rest = np.flatnonzero(cells)[::-1]
                found[is_present] += bool(cells[first] == 1 and rest and first - rest[0] > 8)
                alone.append(np.mean(cells[cells > 0] == 1))
                smallest = min(smallest, int(cells[cells > 0].min()))
        print(
            f"{n_null} known normals, {name}: found {found[True]} of {n_people} present and"
            f" {found[False]} of {n_people} absent; {np.mean(alone):.0%} of the cells with rows"
            f" hold one row, the smallest holds {smallest}",
            flush=True,
        )


def price(n_agents: int, shift: float, draws: int) -> None:
    """Print power with single rows in cells, and with the default of sites."""
    powers = []
    for seed in range(draws):
        drawn = gaussian_design(shift, seed, n_agents=n_agents)
        agents = [cn.Agent(f"a{i:03d}", a.X_null, a.X_test) for i, a in enumerate(drawn)]
        is_novel = np.concatenate([a.is_novel for a in drawn])
        row = []
        for least in (1, None):
            run = cn.Network(agents, min_group_rows=least).run(check=False)
            rejected = np.concatenate([run[agent.name].rejected for agent in agents])
            row += [
                np.mean(rejected[is_novel]),
                np.mean(~is_novel[rejected]) if any(rejected) else 0,
            ]
        powers.append(row)
    open_power, open_fdp, power, fdp = np.mean(powers, axis=0)
    lost = np.array(powers)[:, 0] - np.array(powers)[:, 2]
    print(
        f"{n_agents} agents, shift {shift:g}: power {open_power:.3f} (FDP {open_fdp:.3f}), by the"
        f" rule of sites {power:.3f} ({fdp:.3f}), lost {lost.mean():.3f} ±"
        f" {lost.std() / draws**0.5:.3f}",
        flush=True,
    )


def main() -> None:
    """Run the attack, then measure the price."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks walls")
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--draws", type=int, default=6)
    options = parser.parse_args()
    for n_null, n_test in SIZES:
        attack(n_null, n_test, options.people)
    for n_agents in (3, 9, 30):
        for shift in (0.0, 2.0):
            price(n_agents, shift, options.draws)


if __name__ == "__main__":
    main()
