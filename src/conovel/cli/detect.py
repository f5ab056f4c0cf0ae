"""``conovel detect``: read two files, write decisions."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import typer

from conovel.cli.detected import print_summary
from conovel.cli.made import made
from conovel.cli.show import (
    addressed,
    bars,
    is_dask,
    print_certificate,
    print_json,
    require_there,
    split_names,
    stages,
)
from conovel.cli.tables import (
    FileOptions,
    about_known,
    as_known_file,
    located,
    named_samples,
    with_options,
)
from conovel.errors import InputError

if TYPE_CHECKING:
    from conovel.rows.datafiles import FileState
    from conovel.rows.dialects import ReadingOptions
    from conovel.rows.known_files import KnownFile
    from conovel.runs.detection import Detection
    from conovel.runs.detector import AdaDetect
    from conovel.runs.file_detection import FileDetection
    from conovel.runs.verdicts import Verdicts
    from conovel.site.engines import Engine
    from conovel.site.explain.reasons import Reasons
    from conovel.spec.findings import Finding


@with_options(
    test="Rows to test: a file, a folder, an address such as s3://bucket/today.parquet, or - for"
    " standard input.",
    null="Known normals: a CSV, Parquet, Arrow, JSON lines or Excel file, a folder of them, an"
    " address or -.",
    detector="Instead of known normals, a detector of `conovel fit`. It has not seen the rows to"
    " test, and answers in milliseconds.",
    ledger="File of a ledger: decide together with all earlier batches, with one guarantee for"
    " the list of all flagged rows. It is made if it is not there.",
    verdicts="File of verdicts: record the batch, and learn from verdicts on earlier ones, which"
    " `conovel verdicts add` puts there. It is made if it is not there.",
    learn="With --verdicts, whether new verdicts train the score. By default they do as soon as"
    " enough known normals are left to calibrate.",
    final="Begin a ledger whose decisions are final; it finds far less.",
    batches=typer.Option(min=1, help="With --final, how many batches share the level."),
    out="Where to write the decisions (.parquet, .csv, .jsonl or .xlsx); a .json goes beside.",
    level="Largest tolerated share of false alarms among the flagged rows. If not given, that of"
    " the ledger or of the detector, else 0.1.",
    scorer="automatic, extra-trees, random-forest, compiled-forest, boosting, logistic, mlp,"
    " refined-trees, refined-linear, isolation-forest or knn; several with commas: the best is"
    " chosen without loss of the guarantee.",
    max_train_rows=typer.Option(
        min=2,
        help="Largest number of known normals, and of other rows, that the scorer learns from;"
        " further known normals calibrate.",
    ),
    repeats="Number of runs with random splits of their own, 1 to 100, whose evidence is"
    " averaged. With 10 the answer depends less on --seed, where one run finds clearly more than"
    " nothing; it takes 10 times as long. For rows in memory only.",
    ties="against: calibration rows with the score of a test row count against it. random: equal"
    " scores are ordered at random, which finds more where many are equal; equal rows may then get"
    " different answers. For rows in memory only.",
    strata="Columns, with commas, within whose values rows are compared: a branch, a month. The"
    " shares of these may then differ between known normals and tests. Rows of a stratum"
    " without known normals are not tested.",
    weights="Where normal rows of the test file are not distributed like the known normals (other"
    " branches, another season), but it is known how much more often each occurs there: the"
    " column of both files that has this number, above 0. The score does not use it, and the"
    " guarantee stays exact. `estimate` learns it from the rows; the guarantee then is approximate"
    " only. For rows in memory only.",
    memory="Read the files in pieces and use at most this much memory, such as 1GB; large files"
    " are always read in pieces. The results are the same, and an interrupted run can be"
    " continued.",
    reasons=typer.Option(
        min=0,
        help="Say for at most so many flagged rows why they were flagged, the most novel first; 0"
        " explains none. If not given 10,000, or 1,000 where most rows are flagged or drift was"
        " found.",
    ),
    keep_columns="Copy the columns of the test file into --out.",
    certificate="Say how many of the flagged rows can be false, and how many rows are novel at"
    " least, with this probability, such as 0.95.",
    confidence="Flag the longest list of which at most LEVEL is false with this probability, such"
    " as 0.95, instead of on average.",
    check="Look for what speaks against the result: drift, an id or a label among the columns, an"
    " implausible outcome. It changes no decision.",
)
def detect(
    *,
    test: Path,
    null: Path | None = None,
    known_file: Path | None = None,
    kind_column: str | None = None,
    detector: Path | None = None,
    ledger: Path | None = None,
    verdicts: Path | None = None,
    learn: bool | None = None,
    final: bool = False,
    batches: int = 30,
    out: Path | None = None,
    level: str | None = None,
    options: FileOptions,
    scorer: str = "automatic",
    train_fraction: str | None = None,
    pi0: str | None = None,
    seed: int = 0,
    max_train_rows: int = 100_000,
    repeats: int = 1,
    ties: str = "against",
    strata: str | None = None,
    weights: str | None = None,
    memory: str | None = None,
    engine: str = "local",
    scheduler: str | None = None,
    reasons: int | None = None,
    keep_columns: bool = False,
    certificate: str | None = None,
    confidence: str | None = None,
    check: bool = True,
    json: bool = False,
) -> None:
    """Flag the novel rows of one site's test file.

    Example: `conovel detect --null normal.parquet --test today.csv --id txn --out flagged.parquet`

    Every day, with one guarantee for the list of all flagged rows:
    `conovel detect --detector detector.conovel --test today.csv --ledger month.json`

    Columns are matched by name. They may be numbers, categories, texts of few values and, with
    --kind, dates; values may be missing. At most the fraction LEVEL of the flagged rows is
    expected to be false alarms, whatever the model, provided the known normals and the normal test
    rows come from the same source.
    """
    require_there(null, test, known_file, detector)
    from conovel.cli.ledger import begin_ledger  # noqa: PLC0415
    from conovel.rows.datafiles import describe_files  # noqa: PLC0415
    from conovel.rows.storage import beside, require_writable, write_json  # noqa: PLC0415

    if out is not None:
        require_writable(out)
    reading = options.reading
    files = DetectFiles(
        null,
        test,
        as_known_file(known_file, kind_column),
        out,
        options.features,
        options.id_column,
        ledger,
        reading,
        check,
        reasons,
        keep_columns,
    )
    files = files._replace(
        weights=_as_weights(weights, detector, ledger, verdicts, memory, engine)
    )
    if verdicts is not None or learn is not None:
        from conovel.cli.verdicts import open_for_detect  # noqa: PLC0415

        _refuse_pieces(memory, engine)
        files = files._replace(verdicts=open_for_detect(verdicts, learn, detector))
    if detector is not None or ledger is not None:
        _refuse_one_batch(confidence, None if detector is None else strata)
        level = begin_ledger(ledger, level, final=final, batches=batches)
        _refuse_pieces(memory, engine)
    if detector is not None:
        result, picture, why = _with_kept(detector, files, level)
    else:
        result, picture, why = _with_normals(
            [
                split_names(scorer),
                level or "0.1",
                train_fraction,
                pi0,
                seed,
                max_train_rows,
                repeats,
                options.agreed_schema(),
                confidence,
                ties,
                split_names(strata) if strata else None,
                weights,
            ],
            files,
            memory,
            _engine(engine, scheduler),
            confidence,
        )
    source = {"detector": str(detector)} if null is None else {"null": addressed(null)}
    paths = (null, test, known_file)
    read_as = describe_files([path for path in paths if path is not None], reading)
    read_as = {addressed(path): how for path, how in read_as.items()}
    summary = {"command": "detect", **source, "test": addressed(test), "read_as": read_as}
    summary |= result.summary() | about_known(result, known_file)
    if certificate is not None:
        from conovel.report import lists_of  # noqa: PLC0415

        summary["certificate"] = result.certificate(certificate).to_dict()
        picture["lists"] = lists_of(result, certificate)
    if out is not None:
        content = {**summary, "table": out.name, "picture": picture}
        if why is not None:
            content["reasons"] = {"": why.to_dict(result.n_rejected)}
        used = result.columns_used
        content["made"] = made(out, (*paths, detector), used, seed=seed)
        write_json(beside(out), content)
    logging.getLogger("conovel.cli").info(result.headline)
    if json:
        print_json(summary)
    else:
        print_summary(result, files, read_as, why)
        print_certificate(result, certificate)


def _refuse_one_batch(confidence: str | None, strata: str | None) -> None:
    if confidence is not None:
        raise InputError("--confidence is about one list: leave --detector and --ledger out")
    if strata is not None:
        raise InputError("a detector has its strata: leave --strata out, or give it to fit")


def _refuse_pieces(memory: str | None, engine: str) -> None:
    if memory is not None or engine != "local":
        raise InputError(
            "--memory and --engine do not work with --detector, --ledger or --verdicts"
        )


def _as_weights(
    weights: str | None,
    detector: Path | None,
    ledger: Path | None,
    verdicts: Path | None,
    memory: str | None,
    engine: str,
) -> str | None:
    """Refuse what weights are not combined with; settings are checked later."""
    given = {
        "--detector": detector is not None,
        "--ledger": ledger is not None,
        "--verdicts": verdicts is not None,
        "--memory": memory is not None,
        "--engine": engine != "local",
    }
    if weights and (refused := [name for name, is_given in given.items() if is_given]):
        raise InputError(
            f"--weights does not work with {' and '.join(refused)}: one batch of rows in memory is"
            " weighed, and nothing is proven for the rest"
        )
    return weights


def _with_kept(detector: Path, files: DetectFiles, level: str | None) -> _Found:
    from conovel.cli.ledger import read_batch  # noqa: PLC0415
    from conovel.report import of_detection  # noqa: PLC0415
    from conovel.rows.datafiles import state_of  # noqa: PLC0415
    from conovel.runs.kept import KeptDetector  # noqa: PLC0415

    if files.null is not None or files.columns is not None:
        raise InputError(
            "a detector has its known normals and columns: leave --null and --columns"
        )
    if files.known_file is not None:
        raise InputError(
            "the score of a detector is learnt already: leave --known, or detect with --null"
        )
    kept, before = KeptDetector.load(detector), state_of(files.test)
    name = None if files.ledger is None else files.test.name
    with named_samples(files.reading, test=files.test):
        rows, ids = read_batch(kept, files.test, files.id_column, files.reading)
        result = kept.detect(rows, ids=ids, level=level, ledger=files.ledger, name=name)
        result = replace(result, warnings=tuple(map(files.located, result.warnings)))
    why = None
    if result.explainer is not None and files.most_reasons != 0:  # else it holds no normals
        why = result.most_novel_reasons(files.most_reasons)
    write_decisions(result, why, files, before)
    return result, of_detection(result), why


def _with_normals(
    settings: list[Any],
    files: DetectFiles,
    memory: str | None,
    engine: Engine | None,
    confidence: str | None,
) -> _Found:
    from conovel.runs.detector import AdaDetect  # noqa: PLC0415

    if files.null is None:
        raise InputError("give the known normals with --null, or a detector with --detector")
    detector = AdaDetect(*settings)
    detector.confidence = confidence
    in_memory = files.ledger or files.verdicts or files.weights  # decide in memory alone
    if not in_memory and _wants_pieces(files, memory, engine):
        return _in_pieces(detector, files, memory, engine)
    return _in_memory(detector, files)


def _wants_pieces(files: DetectFiles, memory: str | None, engine: Engine | None) -> bool:
    """Return whether the files are read in pieces; the results are the same."""
    from conovel.rows.storage import are_large  # noqa: PLC0415

    wanted = memory is not None or engine is not None
    if wanted and files.out is None:
        raise InputError(
            "--memory and --engine need --out, because decisions are written piece by piece"
        )
    return wanted or (files.out is not None and are_large(*files.both))


def _engine(name: str, scheduler: str | None) -> Engine | None:
    if not is_dask(name, scheduler):
        return None
    from conovel.site.engines import DaskEngine  # noqa: PLC0415

    return DaskEngine(str(scheduler))


# The decisions, what a report draws of them, and why rows were flagged.
_Found: TypeAlias = "tuple[Detection | FileDetection, dict[str, Any], Reasons | None]"


def _in_memory(detector: AdaDetect, files: DetectFiles) -> _Found:
    from conovel.report import of_detection  # noqa: PLC0415
    from conovel.rows.datafiles import state_of  # noqa: PLC0415
    from conovel.rows.known_files import read_samples_of_files  # noqa: PLC0415
    from conovel.rows.schemas import columns_read  # noqa: PLC0415
    from conovel.rows.storage import read_pair_of_files  # noqa: PLC0415

    reading, columns = columns_read(detector.schema, files.reading, files.columns)
    if files.weights is not None:
        reading = with_weights(reading, files)
    with stages() as show, named_samples(reading, *files.both, files.known_path):
        show.stage("reading files")
        before = state_of(files.test)
        wanted, known_rows = (*files.both, columns, files.id_column, reading), None
        if files.known_file is None:
            normals, rows = read_pair_of_files(*wanted)
        else:
            normals, rows, known_rows = read_samples_of_files(*wanted, files.known_file)
        result = detector.detect(
            normals.features,
            rows.features,
            known_rows,
            ids=rows.ids,
            on_stage=show.stage,
            on_finding=lambda finding: show.finding(files.located(finding)),
            ledger=files.ledger,
            verdicts=files.verdicts,
            name=files.test.name if files.ledger or files.verdicts else None,
            check=files.check,
        )
        result = replace(result, warnings=tuple(map(files.located, result.warnings)))
        show.stage("explaining flagged rows")
        why = result.most_novel_reasons(files.most_reasons) if files.most_reasons != 0 else None
        show.stage("writing")
        write_decisions(result, why, files, before)
    return result, of_detection(result), why


def _in_pieces(
    detector: AdaDetect, files: DetectFiles, memory: str | None, engine: Engine | None
) -> _Found:
    from conovel.report import of_files  # noqa: PLC0415
    from conovel.runs.file_detection import detect_files  # noqa: PLC0415

    assert files.out is not None  # noqa: S101  (_wants_pieces has checked it)
    names = named_samples(files.reading, *files.both, files.known_path)
    with bars() as show_progress, names:
        result = detect_files(
            detector,
            *files.both,
            files.out,
            columns=files.columns,
            id_column=files.id_column,
            reading=files.reading,
            memory=memory,
            engine=engine,
            on_progress=show_progress,
            check=files.check,
            most_reasons=files.most_reasons,
            keep_columns=files.keep_columns,
            known_file=files.known_file,
        )
    result = replace(result, warnings=tuple(map(files.located, result.warnings)))
    return result, of_files(result), result.reasons


def with_weights(reading: ReadingOptions, files: DetectFiles) -> ReadingOptions:
    """Read the column of weights beside the features, also where --columns does not name it."""
    from conovel.runs.weighted import ESTIMATE  # noqa: PLC0415

    if files.weights == ESTIMATE or files.columns is None or files.weights in files.columns:
        return reading
    return replace(reading, also=(*reading.also, str(files.weights)))


class DetectFiles(NamedTuple):
    """The files to read, the file for the decisions, and what is done besides."""

    null: Path | None
    test: Path
    known_file: KnownFile | None
    out: Path | None
    columns: list[str] | None
    id_column: str | None
    ledger: Path | None
    reading: ReadingOptions
    check: bool
    most_reasons: int | None  # None: a number by what was flagged
    keep_columns: bool
    verdicts: Verdicts | None = None
    weights: str | None = None

    @property
    def both(self) -> tuple[Path, Path]:
        """Known normals, which are there, and rows to test."""
        assert self.null is not None  # noqa: S101  (_with_normals has checked it)
        return self.null, self.test

    def located(self, finding: Finding) -> Finding:
        """Name the line of a file in a finding about a row."""
        named_files = {"known normals": self.null, "test rows": self.test}
        there = {which: path for which, path in named_files.items() if path is not None}
        return located(finding, there, self.reading)

    @property
    def known_path(self) -> Path | None:
        """The file of known novelties, if there is one."""
        return None if self.known_file is None else self.known_file.path


def write_decisions(
    result: Detection, why: Reasons | None, files: DetectFiles, before: FileState
) -> None:
    """Write the file of decisions, if one was asked for; `before` are the files that were read."""
    from conovel.rows.storage import read_originals, write_table  # noqa: PLC0415
    from conovel.rows.tables import numbered  # noqa: PLC0415
    from conovel.site.output import free_name  # noqa: PLC0415

    if files.out is None:
        return
    columns = numbered(result.columns(), result.rejected.size)
    if why is not None:
        columns |= why.file_columns(0, result.rejected.size)
    if files.keep_columns:
        n_rows = result.rejected.size
        for name, values in read_originals(files.test, before, n_rows, files.reading).items():
            columns[free_name(name, columns)] = values
    write_table(files.out, columns)
