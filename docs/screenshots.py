"""Photograph reports of real runs for the docs: ``python docs/screenshots.py [ai4i2020.csv]``.

Needs Chromium and the extra ``dev``. The one site is scikit-learn's breast cancer data: benign
tumours are the known normals, and malignant ones hide among the rows to test. The network is
the paper's Gaussian design. The analyst's part is of the milling machines of the AI4I
2020 data (UCI, CC BY 4.0), if their file is given: at one site, and each type of machine a site of
a federation on this machine, with a process and a certificate for every party. The page of a site
is that of such a federation, while a run waits for a person.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from playwright.sync_api import Browser, sync_playwright
from sklearn.datasets import load_breast_cancer

import conovel as cn
from conovel.experiments.gaussian import gaussian_design
from conovel.federation.loopback import OPERATOR, Loopback
from conovel.report import network_content, of_detection, render

FOLDER = Path(__file__).parent / "_static"


def one_site() -> dict[str, object]:
    """Find malignant tumours among benign ones."""
    data = load_breast_cancer()
    rng = np.random.default_rng(0)
    benign = rng.permutation(np.flatnonzero(data.target == 1))
    malignant = rng.permutation(np.flatnonzero(data.target == 0))
    rows = rng.permutation(np.concatenate([benign[260:], malignant[:30]]))
    result = cn.AdaDetect(level=0.1).detect(
        data.data[benign[:260]], data.data[rows], ids=[f"case {row:03d}" for row in rows]
    )
    return {
        "command": "detect",
        "null": "benign.parquet",
        "test": "today.parquet",
        **result.summary(),
        "picture": of_detection(result),
    }


def network() -> dict[str, object]:
    """Let three sites decide together."""
    drawn = gaussian_design(1.0, 0, n_null=4500, n_test=1500)
    rows = dict(zip(("north", "south", "west"), drawn, strict=True))
    agents = [cn.Agent(name, r.X_null, r.X_test) for name, r in rows.items()]
    truth = {name: r.is_novel for name, r in rows.items()}
    return network_content(cn.Network(agents).run(), truth)


MACHINES = [
    "Air temperature [K]",
    "Process temperature [K]",
    "Rotational speed [rpm]",
    "Torque [Nm]",
    "Tool wear [min]",
]


def machines(file: Path, folder: Path) -> tuple[Path, Path]:
    """Find failures among milling machines; give pages of one site, and of one of a federation."""
    table = pd.read_csv(file, encoding="utf-8-sig")
    rng = np.random.default_rng(0)

    def split(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        normal = rows[rows["Machine_failure"] == 0].iloc
        failed = rows[rows["Machine_failure"] == 1]
        order = rng.permutation(int((rows["Machine_failure"] == 0).sum()))
        cut = 3 * order.size // 4
        return normal[order[:cut]], pd.concat([normal[order[cut:]], failed])

    known, tests = split(table)
    columns = ["Type", *MACHINES]
    result = cn.AdaDetect(level=0.2).detect(
        known[columns], tests[columns], ids=tests["Product ID"].to_numpy()
    )
    result.report(folder / "why.html")
    sites = {}
    for name, rows in table.groupby("Type"):
        known, tests = split(rows)
        sites[f"type-{name}"] = known[MACHINES], tests[["Product ID", *MACHINES]]
    return folder / "why.html", federated(sites, folder / "federation")


def federated(rows: dict[str, tuple[pd.DataFrame, pd.DataFrame]], folder: Path) -> Path:
    """Run a federation on this machine; give the page that one of its sites wrote."""
    columns = {n: tuple({c: t[c].to_numpy() for c in t} for t in two) for n, two in rows.items()}
    federation = Loopback(folder, columns, consent='regimes = ["together"]')
    for site in federation.sites:
        path = federation.settings(site)
        path.write_text(path.read_text().replace("[data]", '[data]\nid = "Product ID"'))
    try:
        federation.bring_up()
        operator = str(federation.settings(OPERATOR))
        ended = federation.run("run", "--federation", operator, "--level", "0.2")
        if ended.returncode:
            raise RuntimeError(ended.stdout + ended.stderr)
        federation.wait_for_reports()
    finally:
        federation.stop()
    return next((folder / "type-L" / "results").glob("*/report.html"))


def desk(browser: Browser, folder: Path) -> None:
    """Run a federation twice, and photograph the page of a site while a third run waits."""
    drawn = gaussian_design(1.0, 0, n_null=1500, n_test=300)
    rows = {
        name: tuple(
            {f"x{j}": part[:, j] for j in range(part.shape[1])} for part in (r.X_null, r.X_test)
        )
        for name, r in zip(("north", "south", "west"), drawn, strict=True)
    }
    federation = Loopback(folder, rows, consent='regimes = ["full"]')
    operator = str(federation.settings(OPERATOR))
    order = ["run", "--federation", operator, "--regime", "full", "--liars", "0"]
    page = None
    try:
        federation.bring_up()
        for _ in range(2):
            federation.run(*order)
        federation.wait_for_reports()
        path = federation.settings("north")
        path.write_text(path.read_text() + "ask_seconds = 600\n")
        started = [sys.executable, "-c", "from conovel.cli import main; main()"]
        waits = subprocess.Popen([*started, *order], stdout=subprocess.DEVNULL)
        command = [*started, "desk", str(path), "--port", "0"]
        page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        address = page.stdout.readline().split()[-1]
        opened = browser.new_page(viewport={"width": 1180, "height": 900})
        opened.goto(address)
        while "waits for your consent" not in opened.content():
            opened.wait_for_timeout(500)
            opened.reload()
        opened.screenshot(path=FOLDER / "desk.png")
        opened.close()
        waits.terminate()
    finally:
        if page is not None:
            page.terminate()
        federation.stop()


def photograph(
    browser: Browser,
    page: Path,
    name: str,
    width: int,
    height: int,
    scheme: str,
    start: str | None = None,
) -> None:
    """Take a picture of one screen of a page, from its top or from a heading."""
    phone = width < 500
    opened = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        device_scale_factor=2 if phone else 1,
    )
    opened.goto(page.as_uri())
    for folded in opened.query_selector_all("#flagged-rows details")[:1]:
        folded.evaluate("element => element.open = true")
    if start:
        opened.locator("h2", has_text=start).evaluate(
            "heading => window.scrollTo(0, heading.getBoundingClientRect().top + scrollY - 32)"
        )
    opened.screenshot(path=FOLDER / f"{name}.png")
    opened.close()


def main() -> None:
    """Run, report, and photograph."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        pages = {}
        for name, content in (("site", one_site()), ("network", network())):
            pages[name] = Path(folder) / f"{name}.html"
            pages[name].write_text(render(content), encoding="utf-8")
        browser = driver.chromium.launch(executable_path=chromium)
        site, together = pages["site"], pages["network"]
        photograph(browser, together, "report-network", 1180, 900, "light")
        photograph(browser, together, "report-list", 1180, 640, "light", "Choose a list")
        photograph(browser, together, "report-decision", 1180, 1120, "light", "How it was decided")
        photograph(browser, together, "report-counts", 1180, 1080, "dark", "The counts")
        desk(browser, Path(folder) / "desk")
        photograph(browser, site, "report-phone", 390, 844, "light")
        photograph(browser, site, "report-phone-dark", 390, 844, "dark", "How it was decided")
        if len(sys.argv) > 1:
            why, network_why = machines(Path(sys.argv[1]), Path(folder))
            photograph(browser, why, "report-why", 1180, 1000, "light", "Why these rows?")
            photograph(browser, network_why, "report-why-network", 1180, 1000, "dark", "Why these")
        browser.close()


if __name__ == "__main__":
    main()
