"""What a site would say to a run, before all parties spend time on it.

The rows are read and the schema is applied. Everything that the site would refuse is named, not
only the first objection. Nothing is sent, and nothing is written into the audit log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from conovel.deciding.ways import ways_of
from conovel.errors import ConovelError
from conovel.federation.consent import objection_to_precision
from conovel.federation.exposure import epsilon_spent, runs_of, runs_spent
from conovel.federation.settings import SiteFile
from conovel.federation.site_files import SiteFiles
from conovel.federation.site_list import objection_to_list
from conovel.federation.terms import Terms
from conovel.site.site import Site
from conovel.stats.words import counted


class Rehearsal(NamedTuple):
    """What was read, and what would be refused."""

    facts: tuple[tuple[str, str], ...]  # a name and its value, for people
    objections: tuple[str, ...]  # empty: the site would take part


def usual_terms(file: SiteFile) -> Terms:
    """Return the terms of a run with all defaults and as few agents as the site agrees to."""
    n_others = max(file.limits.min_agents, 2) - 1
    return Terms((file.name, *(f"other-{j + 1}" for j in range(n_others))))


def rehearse(file: SiteFile, terms: Terms) -> Rehearsal:
    """Read the rows of a site, and apply its settings to the terms of a run."""
    objections = [objection for objection in _to_terms(file, terms) if objection]
    files = SiteFiles(file, terms)
    try:
        site = files.open()
    except ConovelError as error:
        return Rehearsal((), (*objections, f"the rows cannot be read: {error}"))
    facts = [
        ("known normals", f"{site.facts.n_null:,}"),
        ("rows to test", f"{site.facts.n_test:,}"),
        *_numbers(site, len(terms.agents)),
        *([] if file.limits.ask_seconds == 0 else [("consent", "a person is asked, see desk")]),
    ]
    objections += [
        f"{reason} ({numbers})" if numbers else reason
        for reason, numbers in _to_rows(file, files, terms, site)
        if reason
    ]
    if site.store is not None:
        site.close()
    return Rehearsal(tuple(facts), tuple(objections))


def _to_terms(file: SiteFile, terms: Terms) -> Iterator[str]:
    limits = file.limits
    yield limits.objection(terms)
    yield limits.objection_to_schema(terms, file.schema)
    yield objection_to_list(terms, file)
    if file.name not in terms.agents:
        yield f"{file.name} is not among the agents of the run: {', '.join(terms.agents)}"


def _to_rows(
    file: SiteFile, files: SiteFiles, terms: Terms, site: Site
) -> Iterator[tuple[str, str]]:
    limits = file.limits
    learning = ways_of(terms.spec.regime).learning
    rows = site.training_rows(len(terms.agents), learning.learnt_from)
    yield limits.objection_to_training(terms, rows)
    yield limits.objection_to_calibration(terms, rows)
    yield objection_to_precision(limits, terms, site.spec.bits), ""
    chain = file.audit_log.read()
    if chain.broken:
        yield f"line {chain.broken} of the audit log does not hold: see conovel audit", ""
        return
    runs = runs_of(chain.entries)
    n_rows = site.facts.n_null + site.facts.n_test
    yield limits.objection_to_epsilon(terms, epsilon_spent(runs, file.data_set), n_rows)
    yield limits.objection_to_runs(runs_spent(runs, files.digest()))


def _numbers(site: Site, n_agents: int) -> Iterator[tuple[str, str]]:
    """Say how many known normals would train and calibrate."""
    rows = site.training_rows(n_agents)[0]
    yield "would train", counted(rows.n_train, "known normal")
    yield "would calibrate", counted(rows.n_null - rows.n_train, "known normal")
