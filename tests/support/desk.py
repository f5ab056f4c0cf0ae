"""A site with runs, reports, an audit log and verdicts, and a server of its page."""

import re
import socket
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from types import SimpleNamespace
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
import pandas as pd

import conovel as cn
from conovel.desk.app import make_app
from conovel.desk.guard import COOKIE, Keys
from conovel.desk.site_view import SiteView
from conovel.federation.processes import wait_for
from conovel.federation.settings import read_site
from conovel.report import write_report
from support.fake_nvflare import FakeNVFlare
from support.federation import SITES
from support.terms import make_terms

COLUMNS = ["amount", "hour", "visits"]
HOSTILE = '"><script>document.title = "ran"</script><img src=x onerror=alert(1)>\u202e'
OPERATOR = "ana@example.org"


def write_sites(folder, consent="", n_null=400, ids=None):
    """Write the rows and settings of three sites; return their settings by name."""
    rng = np.random.default_rng(0)
    files = {}
    for name in SITES:
        own = folder / name
        own.mkdir(mode=0o700, parents=True)
        null = pd.DataFrame(rng.normal(size=(n_null, 3)), columns=COLUMNS)
        test = pd.DataFrame(rng.normal(size=(120, 3)), columns=COLUMNS)
        test.iloc[:25] += 4.0
        test["case"] = [f"{name}-{i:03d}" for i in range(120)] if ids is None else ids
        null.to_parquet(own / "normal.parquet")
        test.to_parquet(own / "today.parquet")
        (own / "site.toml").write_text(
            f'[site]\nname = "{name}"\nkit = "kit"\n\n[data]\nnull = "normal.parquet"\n'
            f'test = "today.parquet"\nid = "case"\n\n[model]\nscorer = "logistic"\n\n'
            f"[consent]\n{consent}\n"
        )
        files[name] = read_site(own / "site.toml")
    return files


def begin(files, operator=OPERATOR, **settings):
    """Begin a run of the drivers in memory, as an operator asked for it."""
    terms_of_run = {"regime": "full", "bits": 4, "call_seconds": 5, "level": 0.1} | settings
    limits = {name: file.limits for name, file in files.items()}
    terms = make_terms(tuple(sorted(files)), **terms_of_run)
    fake = FakeNVFlare(terms, files, limits)
    for site in fake.sites.values():
        site.record.note(operator=operator)
    return fake


def run_once(files, **settings):
    """Run to the end, write the reports, and return the id."""
    fake = begin(files, **settings)
    account = fake.run()
    assert account["state"] == "done", account["message"]
    for site in fake.sites.values():
        assert wait_for(lambda site=site: not site.record.is_open, 20)
        folder = site.files.file.results / fake.run_id
        write_report(folder / "run.json", folder / "report.html")
    return fake.run_id


def judge_batches(file, n_batches=3, n_wrong=1):
    """Let one site detect with its file of verdicts, and judge what was flagged."""
    rng = np.random.default_rng(1)
    null = pd.read_parquet(file.null)
    for number in range(n_batches):
        test = pd.DataFrame(rng.normal(size=(150, 3)), columns=COLUMNS)
        test.iloc[:20] += 4.0
        result = cn.AdaDetect("logistic").detect(
            null, test, verdicts=cn.Verdicts(file.verdicts, learn=False), name=f"day {number + 1}"
        )
        flagged = np.flatnonzero(result.rejected)[:15]
        words = {str(i): "normal" if j < n_wrong else "novel" for j, i in enumerate(flagged)}
        cn.Verdicts(file.verdicts).add(words, who="ana")


@contextmanager
def served(settings):
    """Serve the page of a site on a free port; give the address with the token, and the keys."""
    import uvicorn

    keys = Keys()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = uvicorn.Config(
            make_app(SiteView(settings), keys), log_level="error", lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        assert wait_for(lambda: server.started, 20)
        try:
            yield address, keys
        finally:
            server.should_exit = True
            thread.join(20)


def text_of(page):
    """Return a page without its tags, on one line."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


class Visitor:
    """A browser without a screen: it keeps the cookie of its folder, and follows if asked to."""

    def __init__(self, address, keys):
        self.address, self.keys, self.cookie = address, keys, None

    def ask(self, method, path, *, headers=None, body=None, follow=False):
        host, own = urlsplit(self.address).netloc, dict(headers or {})
        if self.cookie is not None and path.startswith(f"/{self.keys.folder}/"):
            own.setdefault("Cookie", f"{COOKIE}={self.cookie}")
        line = HTTPConnection(host, timeout=60)
        line.request(method, quote(path, safe="/?&=#%"), body, own)
        answer = line.getresponse()
        text = answer.read().decode()
        head = {name.lower(): value for name, value in answer.getheaders()}
        line.close()
        if "set-cookie" in head:
            self.cookie = head["set-cookie"].partition(";")[0].partition("=")[2]
        if follow and answer.status == 303:
            return self.ask("GET", head["location"].partition("#")[0])
        return SimpleNamespace(status=answer.status, headers=head, text=text)

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def enter(self):
        return self.get(f"/open/{self.keys.token}")

    def post(self, path, fields, headers=None, **more):
        head = {"Origin": self.address, "Content-Type": "application/x-www-form-urlencoded"}
        own = {k: v for k, v in (head | (headers or {})).items() if v is not None}
        return self.ask("POST", path, headers=own, body=urlencode(fields), **more)
