"""The pages in Chromium: by keyboard alone, on a phone, in the dark, and without seeing them."""

import threading

import pytest
from support.desk import HOSTILE, begin, judge_batches, run_once, served, write_sites
from support.reports import CHROMIUM

from conovel.federation.answers import question_of
from conovel.federation.processes import wait_for
from conovel.federation.run_records import RunRecords
from conovel.federation.settings import read_site
from conovel.runs.verdicts import Verdicts

pytest.importorskip("playwright.sync_api", reason="needs playwright (the extra dev)")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra dev")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A site with hostile names, a run to judge, batches, and a run that waits for a person."""
    ids = [f"{HOSTILE} {'a-rather-long-name-of-a-row' * 3} {i}" for i in range(120)]
    files = write_sites(tmp_path_factory.mktemp("busy"), ids=ids)
    run_id = run_once(files, operator=HOSTILE)
    judge_batches(files["west"], n_wrong=9)
    path = files["west"].path
    path.write_text(path.read_text() + "ask_seconds = 600\n")
    files["west"] = read_site(path)
    fake = begin(files, operator=HOSTILE, stage_seconds=900)
    outcome = {}
    thread = threading.Thread(target=lambda: outcome.update(fake.run()), daemon=True)
    thread.start()
    assert wait_for(lambda: any(map(question_of, RunRecords(files["west"].state).runs())), 20)
    with served(path) as (address, keys):
        yield address, keys, run_id, fake.run_id, files["west"], outcome
    if thread.is_alive():
        fake.coordinator.stop("the test is over")
    thread.join(20)


@pytest.fixture
def opened(browser, busy):
    contexts = []

    def open_desk(width=1280, scheme="light", **settings):
        size = {"width": width, "height": 800}
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme, **settings))
        page = contexts[-1].new_page()
        page.complaints, page.outside = [], []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("dialog", lambda dialog: page.complaints.append(dialog.message))
        page.on("request", lambda asks: page.outside.append(asks.url))
        page.goto(f"{busy[0]}/open/{busy[1].token}")
        return page

    yield open_desk
    for context in contexts:
        context.close()


def addresses(busy):
    base = f"{busy[0]}/{busy[1].folder}"
    names = "", "runs", f"runs/{busy[2]}", "consent", "left", "verdicts", "verdicts/1", "nothing"
    return [f"{base}/{name}" for name in names]


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_all_pages_fit_are_quiet_and_can_be_used_without_seeing_them(opened, busy, width, scheme):
    page = opened(width, scheme)
    assert busy[1].token not in page.url  # the token has left the address
    for address in addresses(busy):
        page.goto(address)
        for folded in page.query_selector_all("details"):
            folded.evaluate("element => element.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") == width, address
        results = axe.Axe().run(page)
        assert results.response["violations"] == [], results.generate_report()
        levels = page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3')].map(h => Number(h.tagName[1]))"
        )
        assert (levels[0], levels.count(1)) == (1, 1)
        assert "ran" not in page.title()
    assert [text for text in page.complaints if "404" not in text] == []
    assert all(url.startswith(busy[0]) for url in page.outside)


def test_a_phone_has_targets_that_a_finger_meets(opened, busy):
    page = opened(360, "dark", has_touch=True, is_mobile=True)
    for address in (*addresses(busy)[2:4], addresses(busy)[6]):
        page.goto(address)
        for target in page.locator("button, .choices label, nav a, input[type=text]").all():
            box = target.bounding_box()
            if box is not None:
                assert box["height"] >= 24, target.inner_text()
                assert box["x"] >= 0
                assert box["x"] + box["width"] <= 360


def focused(page):
    return page.evaluate(
        "[document.activeElement.tagName, document.activeElement.name || '',"
        " document.activeElement.textContent.trim()]"
    )


def tab_to(page, wanted, most=80):
    for _ in range(most):
        page.keyboard.press("Tab")
        if wanted(focused(page)):
            return
    raise AssertionError(f"never came there; last at {focused(page)}")


def test_verdicts_by_keyboard_alone_and_without_scripts(opened, busy):
    page = opened(java_script_enabled=False)
    page.goto(addresses(busy)[2])
    file = busy[4]
    before = len(Verdicts(file.verdicts).history)
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the content"
    page.keyboard.press("Enter")
    name = page.locator("fieldset legend").first.inner_text()
    assert "<script>" in name  # shown as it is
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.locator(":focus").get_attribute("name") == "verdict-0":
            break
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    page.keyboard.type("a call explained it")
    page.keyboard.press("Enter")  # sends the form
    page.wait_for_url("**saved=1**")
    assert page.get_by_role("status").inner_text() == "1 verdict saved."
    last = Verdicts(file.verdicts).history[-1]
    assert len(Verdicts(file.verdicts).history) == before + 1
    assert (last.verdict, last.note) == ("normal", "a call explained it")
    assert page.locator("input[name=verdict-0][value=normal]").is_checked()


def test_the_report_of_a_run_has_its_scripts_and_nothing_of_the_desk(opened, busy):
    page = opened()
    page.goto(f"{addresses(busy)[2]}/report")
    assert page.locator("#flagged-tools").is_visible()  # its script ran
    assert page.complaints == []
    assert page.evaluate("self.origin") == "null"
    seen = page.evaluate(
        """async base => { try { return await (await fetch(base)).text(); }
            catch (error) { return "refused"; } }""",
        addresses(busy)[0],
    )
    assert seen == "refused"
    with pytest.raises(Exception, match=r"sandboxed|Forbidden|denied"):
        page.evaluate("document.cookie")


def test_a_changed_report_runs_no_script_of_its_own(opened, busy):
    report = busy[4].results / busy[2] / "report.html"
    text = report.read_text()
    report.write_text(
        text.replace("Content-Security-Policy", "nothing").replace(
            "</body>", "<script>document.title = 'ran'</script></body>"
        )
    )
    page = opened()
    page.goto(f"{addresses(busy)[2]}/report")
    assert page.title() != "ran"
    assert any("Content Security Policy" in text for text in page.complaints)
    report.write_text(text)


def test_another_site_can_neither_frame_the_page_nor_send_its_forms(browser, busy, opened):
    """A page of another origin, in the browser that has the cookie."""
    page = opened()
    consent, keys = addresses(busy)[3], busy[1]
    page.goto(consent)
    question = page.locator("input[name=question]").first.get_attribute("value")
    attack = (
        f"<form method=post action='{consent}/{busy[3]}'>"
        f"<input name=form value='{keys.form}'><input name=question value='{question}'>"
        "<input name=answer value=agree><input name=who value=eve></form>"
        f"<iframe src='{consent}'></iframe>"
    )
    page.route(
        "http://evil.example/", lambda route: route.fulfill(body=attack, content_type="text/html")
    )
    page.goto("http://evil.example/")
    frame = page.frames[1] if len(page.frames) > 1 else None
    assert frame is None or "May this run begin" not in frame.content()
    with page.expect_navigation():
        page.evaluate("document.forms[0].submit()")
    assert "Nothing is shown" in page.content()
    assert not list(busy[4].state.glob("*.answer"))
    # A link from there leads nowhere either: the browser keeps the cookie back.
    page.goto("http://evil.example/")
    with page.expect_navigation():
        page.evaluate(f"location = '{consent}'")
    assert "Nothing is shown" in page.content()


def test_consent_by_keyboard_alone(opened, busy):
    page = opened()
    assert "waits for your consent" in page.locator("h1").inner_text()
    tab_to(page, lambda at: at[2] == "Read its terms and answer")
    page.keyboard.press("Enter")
    page.wait_for_url("**/consent")
    tab_to(page, lambda at: at[1] == "who")
    page.keyboard.type("Dr. Ünal")
    page.keyboard.press("Tab")
    assert focused(page)[2] == "Agree to this run"
    page.keyboard.press("Enter")
    page.wait_for_url("**sent=agree")
    assert "you agreed" in page.get_by_role("status").inner_text()
    assert wait_for(lambda: busy[5].get("state") == "done", 60)
    (consent,) = [e for e in busy[4].audit_log.read().entries if e["entry"] == "consent"]
    assert (consent["agrees"], consent["who"]) == (True, "Dr. Ünal")
