"""``conovel watch``: test new files of a folder as they arrive, with one guarantee for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from stat import S_ISLNK, S_ISREG
from typing import TYPE_CHECKING, NamedTuple

import typer

from conovel.cli.show import require_there, say, split_names
from conovel.cli.tables import FileOptions, named_samples, with_options
from conovel.cli.watch_list import ListFile
from conovel.errors import ConovelError, FileError, InputError
from conovel.spec.exits import NO
from conovel.stats.words import counted

if TYPE_CHECKING:
    from conovel.runs.detection import Detection

MOST_ENDS = 3  # times that the process may end while it tests a file, until that is set aside

# Tests one file, and puts it into the ledger.
Test = Callable[[Path], "Detection"]


@with_options(
    folder=typer.Argument(help="Where tables arrive; .txt files are passed over."),
    ledger="File of the ledger; it is made if it is not there.",
    detector="A detector of `conovel fit`: one score for all files.",
    null="Instead of a detector, known normals: each file gets its own score.",
    out="Where to write the list so far after each file (.csv, .parquet, .jsonl or .xlsx), with"
    " reasons and the columns of the files.",
    level="Largest tolerated share of false alarms on the list.",
    strata="With --null, columns within whose values rows are compared, with commas.",
    final="Begin a ledger with final decisions.",
    batches=typer.Option(min=1, help="With --final, how many files share the level."),
    every=typer.Option(min=0.05, help="Seconds between two looks at the folder."),
    once="Test the files that are there, then end.",
)
def watch(
    *,
    folder: Path,
    ledger: Path,
    detector: Path | None = None,
    null: Path | None = None,
    out: Path | None = None,
    level: str | None = None,
    options: FileOptions,
    strata: str | None = None,
    final: bool = False,
    batches: int = 30,
    every: float = 2.0,
    once: bool = False,
) -> None:
    """Test new files of a folder as they arrive, one line each.

    Example: `conovel watch inbox --detector detector.conovel --ledger month.json --out list.csv`

    The ledger knows which files were tested. A watch that is stopped or killed goes on where it
    was, and each file counts once. A file is tested when it has not changed between two looks. At
    most the fraction LEVEL of the list is expected to be false alarms. A file that cannot be
    tested is named and set aside until it changes; a link is not followed. With --once the exit
    code is 3 if a file could not be tested.
    """
    if (detector is None) == (null is None):
        raise InputError("give either --detector, made by conovel fit, or --null")
    if detector is not None and strata is not None:
        raise InputError("a detector has its strata: leave --strata out, or give it to fit")
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder")
    require_there(detector, null, options.schema)
    from conovel.cli.ledger import begin_ledger  # noqa: PLC0415
    from conovel.rows.storage import require_writable  # noqa: PLC0415

    if out is not None:
        require_writable(out)
        if out.parent.resolve() == folder.resolve():
            raise InputError(f"{out} would be tested as a new file: write it outside {folder}")
    level = begin_ledger(ledger, level, final=final, batches=batches)
    test = (
        _kept_test(detector, ledger, level, options)
        if detector is not None
        else _refitted_test(Path(str(null)), ledger, level, options, strata)
    )
    listed = None if out is None else ListFile(out, ledger, folder, options.reading)
    watcher = Watcher(folder, ledger, test, listed)
    try:
        while True:
            watcher.look(every)
            if once and not watcher.waiting:
                break
            time.sleep(every if not once else min(every, 0.5))
    except KeyboardInterrupt:
        say("stopped")
    if once and watcher.n_failed:
        raise typer.Exit(NO)


class _Stat(NamedTuple):
    """What tells that a file has changed."""

    size: int
    time: int
    is_link: bool

    @classmethod
    def of(cls, path: Path) -> _Stat | None:
        """Look at the file itself; None if it is neither a file nor a link."""
        try:
            status = path.lstat()
        except OSError:  # it was moved away
            return None
        is_link = S_ISLNK(status.st_mode)
        is_file = is_link or S_ISREG(status.st_mode)
        return cls(status.st_size, status.st_mtime_ns, is_link) if is_file else None


class Watcher:
    """Looks at a folder and tests each new file once."""

    def __init__(self, folder: Path, ledger: Path, test: Test, listed: ListFile | None) -> None:
        self.folder, self.ledger, self.test, self.listed = folder, ledger, test, listed
        self.waiting = False
        self.n_failed = 0
        self._last: dict[str, _Stat | None] = {}  # as the last look found them
        self._done: dict[str, _Stat | None] = {}  # as they were when they were dealt with
        # Tests that were begun and not ended: size and time of the file, and how often.
        self._notes = ledger.with_name(f".{ledger.name}.begun")
        self._begun = _read_notes(self._notes)
        if self.listed is not None and self.ledger.exists():
            self.listed.write()

    def look(self, settle_seconds: float) -> None:
        """Test the files that are new and have not changed since the last look."""
        stats = {path.name: _Stat.of(path) for path in self._files()}
        self.waiting = False
        for name in sorted(stats, key=lambda n: (stats[n].time if stats[n] else 0, n)):  # type: ignore[union-attr]
            stat = stats[name]
            if stat is None or self._done.get(name) == stat:
                continue
            age = time.time() - stat.time / 1e9
            if self._last.get(name) != stat and age < settle_seconds:
                self.waiting = True  # somebody may still be writing
                continue
            self._deal_with(name, stat)
        self._last = stats

    def _files(self) -> list[Path]:
        from conovel.rows.datafiles import format_of, may_be_note  # noqa: PLC0415

        return [
            path
            for path in self.folder.iterdir()
            if format_of(path) and not may_be_note(path) and not path.name.startswith(".")
        ]

    def _deal_with(self, name: str, stat: _Stat) -> None:
        earlier = self._done.get(name)
        self._done[name] = stat
        if name in self._names():
            if earlier is not None:
                say(f"{name}: changed after it was tested, and is not tested again")
            return
        try:
            result = self._tested(name, stat)
        except Exception as error:  # whatever is in one file, the others are tested
            self.n_failed += 1
            say(f"{name}: not tested: {_why(error)}")
            return
        update = result.ledger
        assert update is not None  # noqa: S101  (every test has a ledger)
        if self.listed is not None:
            self.listed.note(name, result)
            self.listed.write()
        say(
            f"{name}: {counted(update.rejected.size, 'row')},"
            f" {int(update.rejected.sum()):,} flagged;"
            f" {len(update.joined):,} joined the list, {len(update.left):,} left it,"
            f" {update.n_listed:,} of {counted(update.n_tests, 'row')} on it now"
        )
        for finding in result.warnings:
            if finding.breaks_promise:
                say(f"{name}: the promise may not apply: {finding}")
            elif finding.kind in ("untested_strata", "thin_strata"):
                say(f"{name}: {finding}")

    def _tested(self, name: str, stat: _Stat) -> Detection:
        """Test a file, unless it is no file or a test of it has ended this process before."""
        from conovel.rows.dialects import require_text_name  # noqa: PLC0415

        if stat.is_link:
            raise FileError("it is a link, and no link is followed: put the file itself there")
        require_text_name(self.folder / name)
        size, changed, times = self._begun.get(name, (0, 0, 0))
        times = times + 1 if (size, changed) == stat[:2] else 1
        if times > MOST_ENDS:
            raise FileError(
                f"the watch has ended {MOST_ENDS} times while it tested this file: see whether it"
                " needs more memory than there is"
            )
        self._note(self._begun | {name: (stat.size, stat.time, times)})
        try:
            return self.test(self.folder / name)
        finally:
            self._note({key: noted for key, noted in self._begun.items() if key != name})

    def _note(self, begun: dict[str, tuple[int, int, int]]) -> None:
        from conovel.rows.storage import write_json  # noqa: PLC0415

        self._begun = begun
        if begun:
            write_json(self._notes, begun)
        else:
            self._notes.unlink(missing_ok=True)

    def _names(self) -> set[str]:
        from conovel.runs.ledger import Ledger  # noqa: PLC0415

        if not self.ledger.exists():
            return set()
        return {entry.name for entry in Ledger.load(self.ledger).entries}


def _why(error: Exception) -> str:
    """Say what is wrong with a file; of an unexpected error its kind only, and no content."""
    if isinstance(error, ConovelError):
        return error.numbered()
    return f"it cannot be read ({type(error).__name__}): see whether it is what its ending says"


def _read_notes(path: Path) -> dict[str, tuple[int, int, int]]:
    from conovel.rows.storage import read_json  # noqa: PLC0415

    try:
        noted = read_json(path)
        return {name: (int(a), int(b), int(c)) for name, (a, b, c) in noted.items()}
    except (ConovelError, TypeError, ValueError):  # there are none, or none that can be read
        return {}


def _kept_test(detector: Path, ledger: Path, level: str | None, options: FileOptions) -> Test:
    from conovel.cli.ledger import read_batch  # noqa: PLC0415
    from conovel.runs.kept import KeptDetector  # noqa: PLC0415

    kept, reading = KeptDetector.load(detector), options.reading

    def test(path: Path) -> Detection:
        with named_samples(reading, test=path):
            rows, ids = read_batch(kept, path, options.id_column, reading)
            return kept.detect(rows, ids=ids, level=level, ledger=ledger, name=path.name)

    return test


def _refitted_test(
    null: Path, ledger: Path, level: str | None, options: FileOptions, strata: str | None
) -> Test:
    from conovel.rows.schemas import columns_read  # noqa: PLC0415
    from conovel.rows.storage import read_pair_of_files  # noqa: PLC0415
    from conovel.runs.detector import AdaDetect  # noqa: PLC0415

    schema = options.agreed_schema()
    columns = split_names(strata) if strata else None
    detector = AdaDetect(level="0.1" if level is None else level, schema=schema, strata=columns)
    reading, features = columns_read(schema, options.reading, options.features)

    def test(path: Path) -> Detection:
        with named_samples(reading, null, path):
            normals, rows = read_pair_of_files(null, path, features, options.id_column, reading)
            return detector.detect(
                normals.features, rows.features, ids=rows.ids, ledger=ledger, name=path.name
            )

    return test
