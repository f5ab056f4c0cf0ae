"""Turns the JSON of a result into the content of its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from conovel.errors import InputError
from conovel.report.checked import Checked
from conovel.report.evaluation import evaluation_story
from conovel.report.experiment import experiment_story
from conovel.report.findings import check_story, with_findings
from conovel.report.flagged import read_flagged
from conovel.report.network import network_story
from conovel.report.over_time import with_ledger
from conovel.report.picture_content import shortened
from conovel.report.repeats import repeated_detection_story, repeated_network_story
from conovel.report.sections import (
    NOT_CLAIMED,
    lead,
    row_sections,
    selection_section,
    settings_section,
    threshold_fact,
)
from conovel.report.view import Story, read_picture
from conovel.spec.findings import percent
from conovel.stats.levels import as_level
from conovel.stats.words import counted


def story_of(content: Mapping[str, Any], folder: Path | None = None) -> Story:
    """Read the result of any command.

    Parameters
    ----------
    content : mapping
        What ``conovel detect``, ``simulate``, a deployment or ``reproduce`` wrote.
    folder : Path, optional
        Folder of the file, which also has the figures of an experiment.

    Examples
    --------
    >>> story_of({"level": "1/10"})
    Traceback (most recent call last):
    ...
    conovel.errors.RunFileError: command is missing
    """
    run = Checked(content)
    story = replace(_story(run, folder), flagged=read_flagged(run))
    return with_findings(with_ledger(story, run), run)


def _story(run: Checked, folder: Path | None) -> Story:
    command = run.text("command")
    if command == "detect":
        return repeated_detection_story(run) if "repeats" in run else detection_story(run)
    if command == "check":
        return check_story(run)
    if command == "evaluate":
        return evaluation_story(run)
    if command == "reproduce":
        return experiment_story(run, folder)
    if "runs" in run:
        return repeated_network_story(run)
    if "transcript" not in run:
        run.refuse("transcript", f"is missing, and a result of {shortened(command)!r} needs it")
    return network_story(run)


def detection_story(run: Checked) -> Story:
    """Describe the decisions of one site."""
    n_rejected, n_test = run.integer("n_rejected"), run.integer("n_test")
    n_calibration, scorer = run.integer("n_calibration"), run.text("scorer")
    level, guarantee = _level(run), run.object("guarantee")
    drawn = read_picture(run.object("picture"))
    facts = [
        ("false alarms, at most on average", percent(level)),
        ("rows tested", f"{n_test:,}"),
        ("known normals to train on", f"{run.integer('n_train'):,}"),
        ("known normals to compare with", f"{n_calibration:,}"),
        *threshold_fact(drawn),
    ]
    if "pi0" in run:
        facts.append(("share of normals, estimated", f"{run.number('pi0'):.3f}"))
    return Story(
        kind="One site",
        headline=f"{n_rejected:,} of {counted(n_test, 'row')} flagged as novel",
        lead=lead(n_rejected, level),
        facts=facts,
        guarantee=guarantee.text("statement"),
        assumptions=guarantee.texts("assumptions"),
        caveats=[NOT_CLAIMED],
        sections=[
            *row_sections(drawn),
            *selection_section(run, scorer),
            settings_section(
                [
                    ("known normals", run.text("null", "")),
                    ("detector", run.text("detector", "")),
                    ("rows to test", run.text("test", "")),
                    ("level", run.text("level")),
                    ("scorer", scorer),
                ]
            ),
        ],
    )


def _level(run: Checked) -> float:
    try:
        return float(as_level(run.text("level")))
    except InputError:
        run.refuse("level", "is not a level between 0 and 1")
