"""Who is turned away: without the token, by another name, from another page, or with too much."""

import pytest
from support.desk import Visitor, served

from conovel.desk.guard import COOKIE, MAX_BODY, MAX_FIELDS, Keys, host_name
from conovel.runs.verdicts import Verdicts


@pytest.fixture
def stranger(site):
    """A visitor that has nothing."""
    with served(site.path) as (address, keys):
        yield Visitor(address, keys)


@pytest.fixture
def keys(stranger):
    return stranger.keys


@pytest.fixture
def client(stranger):
    """A visitor that was let in."""
    assert stranger.enter().status == 303
    return stranger


def pages(keys, run_id):
    names = "", "style.css", "runs", f"runs/{run_id}", f"runs/{run_id}/report", "consent", "left"
    return [f"/{keys.folder}/{name}" for name in (*names, "verdicts", "verdicts/1", "nothing")]


def test_the_token_becomes_a_cookie_and_leaves_the_address(stranger, keys):
    answer = stranger.enter()
    assert answer.headers["location"] == f"/{keys.folder}/"
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", f"Path=/{keys.folder}/"))
    assert keys.token not in cookie
    assert keys.token not in answer.headers["location"]
    page = stranger.get(f"/{keys.folder}/")
    assert page.status == 200
    assert keys.token not in page.text
    assert keys.cookie not in page.text


@pytest.mark.parametrize("wrong", ["", "x", "é", "x" * 5000])
def test_another_token_opens_nothing(stranger, keys, wrong):
    answer = stranger.get(f"/open/{wrong}")
    assert answer.status == 403
    assert "set-cookie" not in answer.headers
    assert "Open the address that" in answer.text
    assert stranger.get(f"/open/{keys.token[:-1]}").status == 403
    assert stranger.get(f"/open/{keys.token}x").status == 403


def test_without_the_cookie_nothing_is_shown(stranger, keys, run_id):
    answers = [stranger.get(path) for path in [*pages(keys, run_id), "/", "/favicon.ico"]]
    assert {answer.status for answer in answers} == {403}
    assert all("west" not in answer.text for answer in answers)  # not even whose page it is
    stranger.cookie = keys.cookie[:-1] + "z"
    assert stranger.get(f"/{keys.folder}/").status == 403
    stranger.cookie = keys.token
    assert stranger.get(f"/{keys.folder}/").status == 403


def test_the_cookie_alone_opens_nothing_elsewhere(client, keys):
    """Another server of this machine gets no cookie, because it has another folder."""
    other = Keys().folder
    own = {"Cookie": f"{COOKIE}={keys.cookie}"}
    assert client.get(f"/{other}/", headers=own).status == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "a@127.0.0.1", "x/y"],
)
def test_another_name_is_not_answered(client, keys, host):
    """A foreign name can lead to this machine; then its scripts would be of our origin."""
    for path in (f"/{keys.folder}/", f"/open/{keys.token}"):
        answer = client.get(path, headers={"Host": host})
        assert answer.status == 403
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1:9999", "localhost:8765", "LOCALHOST", "[::1]:1"])
def test_names_of_this_machine_are_answered(client, keys, host):
    answer = client.get(
        f"/{keys.folder}/", headers={"Host": host, "Cookie": f"{COOKIE}={keys.cookie}"}
    )
    assert answer.status == 200


def test_a_name_in_an_address():
    assert host_name("127.0.0.1\r\nx: y") == ""
    assert host_name("a" * 300) == ""


def test_every_answer_says_what_a_browser_may_do(client, keys, run_id):
    for path in [*pages(keys, run_id), "/"]:
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "http" not in policy
        assert "unsafe-eval" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "same-origin"
        if not path.endswith("report"):
            assert "script-src" not in policy
            assert "unsafe" not in policy


def test_a_report_is_apart_from_the_pages(client, keys, run_id):
    answer = client.get(f"/{keys.folder}/runs/{run_id}/report")
    policy = answer.headers["content-security-policy"]
    assert answer.status == 200
    assert "sandbox allow-scripts allow-downloads;" in policy
    assert "allow-same-origin" not in policy
    assert "script-src 'sha256-" in policy


def send(client, keys, path="verdicts/1", headers=None, **fields):
    form = {"form": keys.form, "verdict-0": "novel", "who": "ana"} | fields
    return client.post(f"/{keys.folder}/{path}", form, headers)


def test_our_own_form_counts(client, keys, site):
    before = len(Verdicts(site.verdicts).history)
    assert send(client, keys).headers["location"].endswith("verdicts/1?saved=1#rows")
    assert len(Verdicts(site.verdicts).history) == before + 1


@pytest.mark.parametrize(
    ("headers", "fields", "status"),
    [
        ({"Origin": "http://evil.example"}, {}, 403),
        ({"Origin": "null"}, {}, 403),
        ({"Origin": None}, {}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, {}, 403),  # another server of this machine
        ({"Origin": "https://127.0.0.1"}, {}, 403),
        ({}, {"form": "x"}, 403),
        ({}, {"form": ""}, 403),
        ({"Content-Type": "text/plain"}, {}, 415),
        ({"Content-Type": "application/json"}, {}, 415),
    ],
)
def test_a_form_from_elsewhere_does_not(client, keys, site, headers, fields, status):
    before = site.verdicts.read_bytes()
    assert send(client, keys, headers=headers, **fields).status == status
    assert site.verdicts.read_bytes() == before


def test_a_form_without_the_cookie_does_not_count(stranger, keys, site):
    before = site.verdicts.read_bytes()
    assert send(stranger, keys).status == 403
    assert site.verdicts.read_bytes() == before


def test_a_form_is_bounded(client, keys, site):
    before = site.verdicts.read_bytes()
    assert send(client, keys, note="x" * MAX_BODY).status == 413
    many = {f"a{i}": "1" for i in range(MAX_FIELDS)}
    assert send(client, keys, **many).status == 400
    head = {"Origin": client.address, "Content-Type": "application/x-www-form-urlencoded"}
    answer = client.ask("POST", f"/{keys.folder}/verdicts/1", headers=head, body=b"form=\xff\xfe")
    assert answer.status == 400
    assert site.verdicts.read_bytes() == before


def test_other_methods_are_refused(client, keys):
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert client.ask(method, f"/{keys.folder}/").status == 405
    assert send(client, keys, "left").status == 405
    assert client.ask("HEAD", f"/{keys.folder}/").status == 200


def test_nothing_tells_anything_of_the_others(keys):
    parts = {keys.token, keys.folder, keys.cookie, keys.form}
    assert len(parts) == 4
    assert Keys().token != keys.token
    assert keys.token not in repr(keys)
