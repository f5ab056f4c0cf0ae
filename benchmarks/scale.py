"""Files in pieces: growth of time and memory with the rows, and against all in memory.

    python -m benchmarks scale [--sizes 1e5 1e6 1e7] [--budget 1GB] [--repeat 2] [--folder DIR]

Every measurement is a process of its own, so that its peak of memory is its own. Growth shows
cost per row as a multiple of the first size. The comparison, at the largest size, is with what
one would write by hand: pandas reads the files, a random forest of scikit-learn gives
``predict_proba`` of all rows, numpy p-values, scipy BH, pandas writes. In pieces the scorer is
``compiled-forest``, as many trees of the same depth, learnt from as many rows. Both may use two
cores; what the fit takes is shown by itself, too. Known normals are a tenth of the test rows; 20
columns. For peers on the same scores see ``benchmarks statistics``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from rich.console import Console
from rich.table import Table

N_COLUMNS, N_TRAIN, LEVEL, PER_FILE, N_CORES = 20, 20_000, 0.1, 1_000_000, 2
SIZES = [10**5, 10**6, 10**7]
GROWING = ("time", "processor", "memory")
COMPARED = (
    "time",
    "processor",
    "processor, fit",
    "processor, the rest",
    "memory",
    "rejected",
)


def write(folder: Path, budget: str) -> dict[str, float]:
    """Write as many test rows as the folder is called, and a tenth of known normals."""
    n = int(folder.name)
    write_rows(folder / "null", n // 10, 0, seed=1)
    write_rows(folder / "test", n, 0.02, seed=2)
    return {"fitting": 0}


def write_rows(folder: Path, n: int, novel: float, seed: int) -> None:
    """Write normal rows, the first of each file shifted, as a folder of Parquet files."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for index, start in enumerate(range(0, n, PER_FILE)):
        rows = rng.standard_normal((min(PER_FILE, n - start), N_COLUMNS))
        rows[: round(novel * len(rows))] += 1
        table = pa.table({f"x{i}": column for i, column in enumerate(rows.T)})
        pa_parquet.write_table(table, folder / f"{index:04d}.parquet")


def in_pieces(folder: Path, budget: str) -> dict[str, float]:
    """Detect on the files; the fit is timed on its own, too."""
    from conovel import AdaDetect
    from conovel.runs.file_detection import detect_files
    from conovel.site.engines import LocalEngine

    begun: dict[str, float] = {}
    n_rejected = detect_files(
        AdaDetect("compiled-forest", level=LEVEL, max_train_rows=N_TRAIN),
        folder / "null",
        folder / "test",
        folder / "pieces.parquet",
        memory=budget,
        engine=LocalEngine(N_CORES),
        on_progress=lambda stage, *_: begun.setdefault(stage, process_time()) is None,
    ).n_rejected
    fitting = begun["scoring known normals"] - begun["fitting the score model"]
    return {"fitting": fitting, "rejected": n_rejected}


def by_hand(folder: Path, budget: str) -> dict[str, float]:
    """Do the same with everything in memory; the budget is not heard."""
    import pandas as pd
    from scipy.stats import false_discovery_control
    from sklearn.ensemble import RandomForestClassifier

    null, test = pd.read_parquet(folder / "null"), pd.read_parquet(folder / "test")
    train = null.sample(N_TRAIN, random_state=0)
    calibration = null.drop(train.index)
    mixture = pd.concat([calibration, test])
    sample = mixture.sample(N_TRAIN, random_state=0)
    begun = process_time()
    forest = RandomForestClassifier(100, max_depth=10, n_jobs=N_CORES, random_state=0)
    model = forest.fit(pd.concat([train, sample]), np.repeat([0, 1], N_TRAIN))
    fitting = process_time() - begun
    scores = model.predict_proba(mixture)[:, 1]
    ordered, tests = np.sort(scores[: len(calibration)]), scores[len(calibration) :]
    p_values = (ordered.size + 1 - np.searchsorted(ordered, tests)) / (ordered.size + 1)
    adjusted = false_discovery_control(p_values)
    rejected = adjusted <= LEVEL
    decisions = {"score": tests, "p_value": p_values, "adjusted": adjusted, "rejected": rejected}
    pd.DataFrame(decisions).to_parquet(folder / "hand.parquet")
    return {"fitting": fitting, "rejected": int(rejected.sum())}


CHILDREN = {"write": write, "pieces": in_pieces, "hand": by_hand}


def measure(what: str, folder: Path, budget: str) -> dict[str, float]:
    """Do something in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--child", what, "--folder", str(folder)]
    command += ["--budget", budget]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def child(what: str, folder: Path, budget: str) -> None:
    """Print what a measurement took: seconds of clock and processor, peak of memory."""
    import resource

    begun, worked = perf_counter(), process_time()
    found = CHILDREN[what](folder, budget)
    seconds, processor = perf_counter() - begun, process_time() - worked
    taken = {
        "time": seconds,
        "processor": processor,
        "processor, fit": found["fitting"],
        "processor, the rest": processor - found["fitting"],
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(found | taken))


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=lambda s: int(float(s)), nargs="+", default=SIZES)
    parser.add_argument("--budget", default="1GB")
    parser.add_argument("--folder", type=Path, help="where files go; a temporary one by default")
    parser.add_argument("--repeat", type=int, default=2, help="comparisons; the quickest counts")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.folder, options.budget)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        run(Path(place), options.sizes, options.budget, options.repeat)


def run(place: Path, sizes: list[int], budget: str, repeat: int) -> None:
    """Let the size grow, then compare at the last one."""
    from conovel.site.engines import as_memory

    growth = Table(title=f"cost per row as a multiple of the first size; budget {budget}")
    for head in ("test rows", *GROWING, "peak / budget"):
        growth.add_column(head, justify="right")
    first: dict[str, float] = {}
    for n in sizes:
        folder = place / str(n)
        # Not here: Linux counts the peak of whoever starts a process as the process's own.
        measure("write", folder, budget)
        taken = measure("pieces", folder, budget)
        per_row = {key: taken[key] / n for key in GROWING}
        first = first or per_row
        ratios = [f"{per_row[key] / first[key]:.2g}" for key in GROWING]
        growth.add_row(f"{n:,}", *ratios, f"{taken['memory'] / as_memory(budget):.2f}")
    console = Console(width=100)
    console.print(growth)
    runs = [[measure(what, folder, budget) for what in ("hand", "pieces")] for _ in range(repeat)]
    versus = Table(title=f"in memory by hand, as a multiple of in pieces; {sizes[-1]:,} test rows")
    versus.add_column("")
    versus.add_column("ratio", justify="right")
    for key in COMPARED:
        hand, pieces = (min(pair[i][key] for pair in runs) for i in (0, 1))
        versus.add_row(key, f"{hand / max(1, pieces):.2f}")
    console.print(versus)


if __name__ == "__main__":
    main()
