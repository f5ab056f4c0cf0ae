"""The pages: which address shows what, and what each form does."""

from __future__ import annotations

import getpass
import json
import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import escape
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from conovel.desk.batches import (
    calibration_rows,
    rows_of_batch,
    rows_of_run,
    save_batch,
    save_run,
    summary_of,
)
from conovel.desk.guard import LOOPBACK, Application, Guard, Keys
from conovel.desk.site_view import Log, RunView, SiteView, bounded
from conovel.desk.words import limits_in_words, message_in_words, read_terms, terms_in_words
from conovel.errors import UNFORESEEN, ConovelError, InputError, with_number
from conovel.federation.answers import MAX_WHO, write_answer
from conovel.report.flagged import page_script
from conovel.report.lists import lists_script
from conovel.report.picture import shortened
from conovel.report.verdicts import share_plot
from conovel.rows.chained_lines import Chain
from conovel.spec.findings import percent
from conovel.spec.shown import printable
from conovel.spec.version import __version__
from conovel.stats.levels import as_level
from conovel.stats.words import counted

if TYPE_CHECKING:
    from conovel.desk.batches import Rows

T = TypeVar("T")
_log = logging.getLogger("conovel.desk")
_MOST_RUNS = 200  # on a page
_MOST_JUDGED = 30  # of the latest, in which rows without a verdict are looked for
_MOST_ENTRIES = 300  # messages of the audit log on a page
_PAGES = (("", "Today"), ("runs", "Runs"), ("consent", "Consent"), ("left", "What left"),
          ("verdicts", "Verdicts"))  # fmt: skip


def make_app(site: SiteView, keys: Keys, hosts: frozenset[str] = LOOPBACK) -> Application:
    """Return the whole server as an ASGI application."""
    pages = Pages(site, keys)
    routes = [
        Route("/", pages.of(pages.today)),
        Route("/style.css", pages.of(pages.style)),
        Route("/icon.svg", pages.of(pages.icon)),
        Route("/runs", pages.of(pages.runs)),
        Route("/runs/{run_id}", pages.of(pages.run), methods=["GET", "POST"]),
        Route("/runs/{run_id}/report", pages.of(pages.report)),
        Route("/consent", pages.of(pages.consent)),
        Route("/consent/{run_id}", pages.of(pages.answer), methods=["POST"]),
        Route("/left", pages.of(pages.left)),
        Route("/verdicts", pages.of(pages.verdicts)),
        Route("/verdicts/{number}", pages.of(pages.batch), methods=["GET", "POST"]),
    ]
    errors: dict[Any, Any] = {HTTPException: pages.no_page}
    app = Starlette(routes=[Mount(f"/{keys.folder}", routes=routes)], exception_handlers=errors)
    return Guard(app, keys, refusal, hosts)


class Pages:
    """What each address shows."""

    def __init__(self, site: SiteView, keys: Keys) -> None:
        self._site, self._keys, self._base = site, keys, f"/{keys.folder}"

    def of(self, page: Callable[[Request], Response]) -> Callable[[Request], Any]:
        """Return a page that says in words what is wrong; it works in a thread of its own."""

        def safe(request: Request) -> Response:
            try:
                return page(request)
            except InputError as error:
                return self._message(404 if request.method == "GET" else 409, str(error))
            except ConovelError as error:
                return self._message(500, error.numbered())
            except Exception as error:
                _log.exception("a page failed")
                words = f"conovel failed ({type(error).__name__}), which is a fault of its own."
                return self._message(500, with_number(words, UNFORESEEN))

        async def answer(request: Request) -> Response:
            return await run_in_threadpool(safe, request)

        return answer

    async def no_page(self, request: Request, error: Exception) -> Response:
        """Answer an address that is no page."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        return self._message(status, "There is no such page.")

    def _message(self, status: int, words: str) -> Response:
        return self._page("message.html", None, status, words=words)

    def _page(
        self, template: str, here: str | None, status: int = 200, **content: Any
    ) -> Response:
        about = {
            "base": self._base,
            "pages": _PAGES,
            "here": here,
            "site": self._site.file.name,
            "form_key": self._keys.form,
            "version": __version__,
            "n_waiting": len(self._site.waiting()),
            "user": _user(),
            "max_who": MAX_WHO,
        }
        return _html(environment().get_template(template).render(about | content), status)

    def _to(self, path: str) -> Response:
        return RedirectResponse(f"{self._base}/{path}", 303)

    def today(self, request: Request) -> Response:
        """Show what needs a person today, and how things stand."""
        site, runs = self._site, self._site.runs()
        troubles: list[str] = []
        summary = _or_trouble(lambda: summary_of(site), troubles)
        return self._page(
            "today.html",
            "",
            connected=site.is_connected,
            waiting=site.waiting(),
            runs=runs[:5],
            log=_or_trouble(site.log, troubles) or Log.of(Chain()),
            own=summary and _of_site(summary),
            troubles=troubles,
            unjudged=[view for view in runs[:_MOST_JUDGED] if self._is_unjudged(view)],
        )

    def _is_unjudged(self, view: RunView) -> bool:
        try:
            rows = rows_of_run(self._site, view, {})
        except ConovelError:
            return False
        return rows is not None and bool(rows.ids) and not rows.n_judged

    def style(self, request: Request) -> Response:
        """Return the style of all pages."""
        sheets = (environment().get_template(f"{name}.css").render() for name in ("style", "desk"))
        return Response("\n".join(sheets), media_type="text/css")

    def icon(self, request: Request) -> Response:
        """Return the picture in the tab of a browser."""
        picture = environment().get_template("icon.svg").render()
        return Response(picture, media_type="image/svg+xml")

    def runs(self, request: Request) -> Response:
        """List the runs."""
        views = self._site.runs()
        return self._page(
            "runs.html", "runs", runs=views[:_MOST_RUNS], n_more=max(0, len(views) - _MOST_RUNS)
        )

    def run(self, request: Request) -> Response:
        """Show a run, and take verdicts on its rows."""
        site, view = self._site, self._site.run(request.path_params["run_id"])
        if request.method == "POST":
            n = save_run(site, view, _form(request))
            return self._to(f"runs/{view.run_id}?saved={n}#rows")
        terms = read_terms(view.record)
        words = None if terms is None else terms_in_words(terms, view.operator)
        troubles: list[str] = []
        result = _or_trouble(lambda: site.result(view), troubles) or {}
        rows = _or_trouble(lambda: rows_of_run(site, view, result), troubles)
        log = _or_trouble(site.log, troubles)
        return self._page(
            "run.html",
            "runs",
            run=view,
            words=words,
            logged=log and log.run(view.run_id),
            findings=_findings(result),
            troubles=troubles,
            consent=view.record.get("consent"),
            action=f"runs/{view.run_id}",
            **_rows(rows, request),
        )

    def report(self, request: Request) -> Response:
        """Show the report of a run, apart from our own pages: it may run its own scripts alone."""
        view = self._site.run(request.path_params["run_id"])
        if view.report is None:
            raise InputError("There is no report of this run.")
        scripts = " ".join(one["policy"] for one in (page_script(), lists_script()))
        policy = (
            "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline';"
            f" img-src data:; script-src {scripts}; base-uri 'none'; form-action 'none';"
            " frame-ancestors 'none'"
        )
        return HTMLResponse(bounded(view.report), headers={"Content-Security-Policy": policy})

    def consent(self, request: Request) -> Response:
        """Show the runs that wait for a person, and what the site agrees to."""
        site, waiting = self._site, []
        for view in site.waiting():
            terms = read_terms(view.record)
            words = None if terms is None else terms_in_words(terms, view.operator)
            waiting.append((view, words))
        runs, spent = site.spent()
        answered = [view for view in site.runs() if isinstance(view.record.get("consent"), dict)]
        return self._page(
            "consent.html",
            "consent",
            waiting=waiting,
            limits=limits_in_words(site.file.limits, runs, spent),
            asks=bool(site.file.limits.ask_seconds),
            answered=answered[:20],
            settings=str(site.settings),
            sent=request.query_params.get("sent", ""),
        )

    def answer(self, request: Request) -> Response:
        """Take the answer of a person to a run that waits."""
        form, view = _form(request), self._site.run(request.path_params["run_id"])
        words = form.get("answer")
        if words not in ("agree", "refuse"):
            raise InputError("Answer with agree or refuse.")
        write_answer(
            self._site.file.state,
            view.record,
            form.get("question", ""),
            agrees=words == "agree",
            who=form.get("who", ""),
        )
        return self._to(f"consent?sent={words}")

    def left(self, request: Request) -> Response:
        """Show what left the site, from the audit log."""
        log = self._site.log()
        chosen, noted = (request.query_params.get(key, "")[:64] for key in ("run", "noted"))
        entries = [
            entry
            for entry in log.chain.entries
            if entry["entry"] != "received" and chosen in ("", entry.get("run"))
        ]
        return self._page(
            "left.html",
            "left",
            log=log,
            path=str(self._site.file.audit_log.path),
            runs=log.runs[::-1][:_MOST_RUNS],
            chosen=chosen,
            entries=entries[::-1][:_MOST_ENTRIES],
            n_more=max(0, len(entries) - _MOST_ENTRIES),
            noted=noted,
            is_noted=any(noted == entry["hash"] for entry in log.chain.entries),
        )

    def verdicts(self, request: Request) -> Response:
        """Show false alarms beside the promise, and the known normals that are left."""
        site = self._site
        summary = summary_of(site)
        names = {batch["name"] for batch in summary["batches"]}
        others = [view for view in site.runs()[:_MOST_JUDGED] if view.run_id not in names]
        return self._page(
            "verdicts.html",
            "verdicts",
            summary=summary,
            plot=share_plot(summary),
            over=[one for one in summary["agents"] if _is_over(one)],
            unjudged=[view for view in others if self._is_unjudged(view)],
            calibration=calibration_rows(site),
            path=str(site.verdicts_path),
        )

    def batch(self, request: Request) -> Response:
        """Show a batch of the file of verdicts, and take verdicts on its rows."""
        text = request.path_params["number"]
        number = int(text) if text.isdecimal() and len(text) < 9 else 0
        if request.method == "POST":
            n = save_batch(self._site, number, _form(request))
            return self._to(f"verdicts/{number}?saved={n}#rows")
        rows = rows_of_batch(self._site, number)
        return self._page(
            "batch.html",
            "verdicts",
            one=summary_of(self._site)["batches"][number - 1],
            action=f"verdicts/{number}",
            **_rows(rows, request),
        )


def refusal(status: int, words: str) -> Application:
    """Return a page that says why nothing is shown; it says nothing about the site."""
    response: Application = _html(
        environment().get_template("refused.html").render(words=words), status
    )
    return response


@cache
def environment() -> Environment:
    """Return what renders the templates: values are escaped, and what is unseen spelled out."""

    def shown(value: Any) -> Any:
        return printable(value) if type(value) is str else value

    made = Environment(
        loader=ChoiceLoader([PackageLoader("conovel.desk"), PackageLoader("conovel.report")]),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "share": lambda share: f"{share:.1%}".replace("%", " %"),
        "promise": _promise,
        "counted": counted,
        "short": shortened,
        "message": message_in_words,
        "thousands": lambda number: f"{number:,}",
        "in_lines": lambda plain: escape(json.dumps(plain, indent=2, default=str)),
        "when": lambda time: str(time)[:16].replace("T", " "),
    }
    return made


def _html(text: str, status: int) -> Response:
    # JSON may hold half of a surrogate pair.
    return HTMLResponse(text.encode("utf-8", "replace"), status)


def _form(request: Request) -> Mapping[str, str]:
    form: Mapping[str, str] = request.scope["conovel_form"]
    return form


def _or_trouble(read: Callable[[], T], troubles: list[str]) -> T | None:
    """Return what could be read, or note why not: the rest of a page is shown without it."""
    try:
        return read()
    except ConovelError as error:
        troubles.append(error.numbered())
        return None


def _rows(rows: Rows | None, request: Request) -> dict[str, Any]:
    """Return what the part of a page about flagged rows needs."""
    n_pages = 1 if rows is None else rows.n_pages
    at, saved = (request.query_params.get(key, "") for key in ("page", "saved"))
    number = min(max(int(at), 1), n_pages) if at.isdecimal() and len(at) < 9 else 1
    is_saved = saved.isdecimal() and len(saved) < 9
    return {"rows": rows, "number": number, "saved": int(saved) if is_saved else None}


def _findings(result: Mapping[str, Any]) -> list[str]:
    """Return what speaks against a result, in words."""
    listed = result.get("warnings")
    messages = [one.get("message") for one in listed or () if isinstance(one, dict)]
    return [message for message in messages if isinstance(message, str)]


def _of_site(summary: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the shares of the agent with most verdicts, if there are any."""
    agents = [one for one in summary["agents"] if one["n_judged"]]
    return max(agents, key=lambda one: one["n_judged"], default=None)


def _is_over(one: Mapping[str, Any]) -> bool:
    """Tell whether there are certainly more false alarms than promised."""
    return bool(one["n_judged"] and one["low"] > max(float(as_level(x)) for x in one["levels"]))


def _promise(levels: list[str]) -> str:
    return "at most " + ", ".join(percent(as_level(level)) for level in levels)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        return ""
