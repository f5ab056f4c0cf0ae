"""The part of a report about the regime `consensus`: types, and rows that roam."""

from __future__ import annotations

from collections import Counter

from conovel.protocol.transcript import Transcript
from conovel.report.picture import shortened
from conovel.report.view import Checked, Section, Table
from conovel.stats.cells import N_CELLS

_MOST_SITES = 30  # in one table of the flow: it has a column for each


def type_section(transcript: Transcript) -> Section:
    """Say what each site counted, and who is a type."""
    words = [
        "All sites score their rows with the same function, which they learnt together. A row is"
        " compared with the known normals of every site that has enough of them, and the worst"
        " case counts."
    ]
    if uncovered := transcript.uncovered:
        named = ", ".join(shortened(name, 24) for name in uncovered)
        words.append(
            f"Too few known normals to compare with: {named}. Rows that are normal only there may"
            " be flagged."
        )
    return Section("The counts", words, tables=[_type_rows(transcript)])


def _type_rows(transcript: Transcript) -> Table:
    outcome, uncovered = transcript.outcome, set(transcript.uncovered)
    cut = outcome.cells[0] if outcome and outcome.cells else N_CELLS
    rows = []
    for name, counts in sorted(transcript.shared.items()):
        is_compared = "no" if name in uncovered else "yes"
        numbers = [
            sum(counts.calibration),
            sum(counts.calibration[cut:]),
            sum(counts.tests),
            sum(counts.tests[cut:]),
        ]
        rows.append([shortened(name, 24), is_compared, *(f"{number:,}" for number in numbers)])
    columns = [
        "site",
        "compared with",
        "calibration rows",
        "calibration rows as novel",
        "rows under test",
        "flagged",
    ]
    return Table("The counts of the sites", columns, rows, text=frozenset({1}), shown=12)


def flow_section(run: Checked, transcript: Transcript) -> list[Section]:
    """Say at which sites rows were tested, and to whose normals they conform."""
    decisions = run.object("decisions") if "decisions" in run else Checked({})
    sites = {name: decisions.object(name) for name in decisions}
    conforms = {
        name: site.rows("normal_at") for name, site in sites.items() if "normal_at" in site
    }
    if not conforms or transcript.outcome is None:
        return []
    names = [name for name in transcript.outcome.participants][:_MOST_SITES]
    rows = []
    for name in sorted(conforms)[:_MOST_SITES]:
        normal_at = [_names(at) for at in conforms[name]]
        flow = Counter(at for at_all in normal_at if name not in at_all for at in at_all)
        nobody = sum(not at_all for at_all in normal_at)
        home = sum(name in at_all for at_all in normal_at)
        cells = ["–" if at == name else f"{flow[at]:,}" for at in names]
        rows.append([shortened(name, 24), f"{home:,}", *cells, f"{nobody:,}"])
    columns = ["tested at", "conform at home", *(f"only at {shortened(n, 16)}" for n in names)]
    table = Table("Rows between sites", [*columns, "conform nowhere"], rows, shown=12)
    words = (
        "A row conforms to a site if it is not farther from the centre of that site's known"
        " normals than most of these; the level says how many are farther. Rows that conform"
        " elsewhere and not at home have probably come from there. A row that conforms to several"
        " other sites counts at each. Nothing is flagged by this table."
    )
    return [Section("Rows that roam", [words], tables=[table])]


def _names(at: object) -> list[str]:
    return [name for name in at if isinstance(name, str)] if isinstance(at, list) else []
