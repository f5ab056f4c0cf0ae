"""The page: one HTML file that contains its style, its drawings and at most one script."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conovel.errors import RunFileError
from conovel.report.flagged import page_script
from conovel.report.picture import network_content, of_detection
from conovel.report.story import story_of
from conovel.rows.storage import read_json, write_text
from conovel.spec.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

    from conovel.runs.results import NetworkRun
    from conovel.runs.site_results import Detection


def render(content: Mapping[str, Any], folder: Path | None = None) -> str:
    """Write the page of a run as text.

    Parameters
    ----------
    content : mapping
        A result as its command wrote it; see :func:`conovel.report.story.story_of`.
    folder : Path, optional
        Folder of the figures that it names.
    """
    template = _environment().get_template("page.html")
    story = story_of(content, folder)
    page = template.render(story=story, script=page_script(), version=__version__)
    return page.encode("utf-8", "replace").decode(
        "utf-8"
    )  # JSON may hold half of a surrogate pair


def page_of(result: Detection | NetworkRun) -> str:
    """Write the page of a result in memory as text."""
    if isinstance(result, Mapping):
        return render(network_content(result))
    content: dict[str, Any] = {"command": "detect", **result.summary()}
    content["picture"] = of_detection(result)
    if result.explainer is not None:
        why = result.most_novel_reasons()
        content["reasons"] = {"": why.to_dict(result.n_rejected)}
    return render(content)


def write_report(run: Path, out: Path) -> None:
    """Read a result and write its page in one step."""
    try:
        page = render(read_json(run), run.parent)
    except RunFileError as error:
        raise RunFileError(f"{run}: {error}") from None
    write_text(out, page)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    return Environment(
        loader=PackageLoader("conovel.report"),
        autoescape=True,  # names in a run may hold anything
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
