"""The dashboard of a broker with users (M5, A1, A2)."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

import ackq_broker
from ackq.client import Admin, Security
from tests.fakes.raw_client import Client, holder
from tests.fakes.raw_link import RawLink
from tests.wire.access.conftest import Guarded, add_master, add_user
from tests.wire.asking import asked
from tests.wire.dashboard.contents import reject
from tests.wire.dashboard.page import Page


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A broker with a master, an observer, and users with permissions on some queues."""
    folder = tmp_path_factory.mktemp("guarded")
    path = folder / "users.toml"
    tokens = {
        "master": add_master(path),
        "watcher": add_user(path, "watcher", role="observer"),
        "tenant": add_user(path, "tenant", read="tenant[.].*"),
        "writer": add_user(path, "writer", write="dead"),
        "keeper": add_user(path, "keeper", read="graves|void", configure="graves|void"),
    }
    env = {"ACKQ_BROKER_USERS": str(path)}
    with ackq_broker.embedded(folder / "data", http=True, env=env) as running:
        found = Guarded(running, path, tokens)
        with found.client("master") as master:
            for name in ("tenant.a", "tenant.b", "other"):
                master.declare(name)
                master.publish(b"1", b"2", queue=name)
            for session, queues in (("theirs", ["tenant.b"]), ("mixed", ["tenant.a", "other"])):
                master.open(holder(), session=session, queues=queues, max_messages=1)
            for name, queue in (("theirs", "tenant.a"), ("hidden", "other")):
                RawLink(master, link=name, queue=queue).close()
            for name in ("graves", "void", "tenant.void"):
                master.declare(name)
            master.declare("grave", dead_letter_queue="graves")
            reject(master, "grave", "why")
        yield found


def ask(guarded, user, path, body=None):
    """Status and JSON of an answer to a user; None has no token."""
    headers = {} if user is None else {"Authorization": f"Bearer {guarded.tokens.get(user, user)}"}
    if body is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(body)
    status, _, text = asked(guarded.broker.http_endpoint, path, body, **headers)
    return status, json.loads(text)


LOOKS = (
    *("broker", "queues", "queue?name=other", "sessions", "links", "publishers"),
    "dead_letters",
)


def test_a_user_sees_its_own_queues(guarded):
    """A2, L26: a user sees rows, totals, sessions and links of its own queues only.

    An observer sees all.
    """
    assert {ask(guarded, "watcher", f"/api/{path}")[0] for path in LOOKS} == {200}
    for what, names in {
        "queue": ["tenant.a", "tenant.b", "tenant.void"],
        "session": ["theirs"],
        "link": ["theirs"],
    }.items():
        _, found = ask(guarded, "tenant", f"/api/{what}s")
        assert ([row[what] for row in found["rows"]], found["total"]) == (names, len(names))
    _, broker = ask(guarded, "tenant", "/api/broker")
    assert (broker["totals"]["queues"], "sessions" in broker) == (3, False)
    _, one = ask(guarded, "tenant", "/api/queue?name=tenant.a")
    assert (one["ready"] + one["unacked"], one["readers"]) == (2, [])
    assert ask(guarded, "tenant", "/api/links?name=hidden")[1]["rows"] == []
    _, links = ask(guarded, "watcher", "/api/links?name=hidden")
    (row,) = links["rows"]
    assert (row["queue"], "token" in row["holder"], "report" in row) == ("other", False, False)
    assert "no process runs it" in row["held_up"][0]


@pytest.mark.parametrize("user", ["master", "watcher", "tenant", "writer", "keeper"])
def test_what_is_offered_is_what_is_allowed(guarded, user):
    """M5, A2: the offered actions on queues and sessions are exactly the permitted ones."""
    _, broker = ask(guarded, user, "/api/broker")
    refused = ask(guarded, user, "/api/release", {"session": "nobody"})[0] == 403
    assert (broker["user"], broker["may_release"]) == (user, not refused)
    assert ("publishers" in broker) == (ask(guarded, user, "/api/publishers")[0] == 200)
    for queue in ("tenant.void", "void"):
        status, one = ask(guarded, user, f"/api/queue?name={queue}")
        tried = {
            "peek": ask(guarded, user, f"/api/peek?queue={queue}"),
            "purge": ask(guarded, user, "/api/purge", {"queue": queue, "confirm": queue}),
            "redrive": ask(guarded, user, "/api/redrive", {"queue": queue}),
        }
        done = [act for act, (status, _) in tried.items() if status == 200]
        assert done == (one["may"] if status == 200 else [])
    for row in ask(guarded, user, "/api/dead_letters")[1]["rows"]:
        assert row["may"] == ask(guarded, user, f"/api/queue?name={row['queue']}")[1]["may"]


def test_to_ask_what_may_be_done_is_no_refusal(guarded):
    """A8: asking which actions are permitted is not audited as a refusal."""
    before = guarded.broker.log_file.read_text().count('"refused"')
    assert ask(guarded, "watcher", "/api/queue?name=other")[1]["may"] == []
    assert ask(guarded, "watcher", "/api/broker")[1]["may_release"] is False
    assert guarded.broker.log_file.read_text().count('"refused"') == before


@pytest.mark.parametrize(
    ("user", "path", "body", "permission"),
    [
        ("tenant", "queue?name=other", None, "other"),
        ("watcher", "peek?queue=other", None, "read on queue 'other'"),
        ("tenant", "purge", {"queue": "other", "confirm": "other"}, "read on queue 'other'"),
        ("tenant", "release", {"session": "theirs"}, "operator"),
        ("tenant", "publishers", None, "observer"),
    ],
)
def test_a_refusal_names_what_is_missing(guarded, user, path, body, permission):
    """A3: a refusal names the missing permission, as gRPC does, and nothing is done."""
    status, said = ask(guarded, user, f"/api/{path}", body)
    assert (status, said["error"]["code"]) == (403, "permission_denied")
    assert permission in said["error"]["message"]
    with guarded.client("master") as master:
        assert master.queue("other").published == 2
        assert master.session("theirs").leased == 1


def sign_in(page, token):
    page.find("dialog[open] #token")
    page.type("#token", token)
    page.click("#confirm")


def test_signing_in_and_out(browser, guarded):
    """M5, A1: a wrong token is refused in the dialog; a right one stays in its tab alone.

    Another user's rates are not computed from the figures that the first one saw.
    """
    page = Page(browser, guarded.broker.http_endpoint)
    page.open(wanted="dialog[open]")
    page.says(".live", "Not signed in")
    assert page.texts("h1") == ["Queues"]
    assert page.all(".user") == []
    sign_in(page, "guess")
    page.says("dialog .refusal", "belongs to no user")
    page.says(".live", "Not signed in")
    page.find("#token").clear()
    sign_in(page, guarded.tokens["watcher"])
    page.row("Queues", "other")
    page.says(".user", "watcher")
    page.says(".live", "Live")
    page.resize(360, 812)
    assert page.script("return document.documentElement.scrollWidth") <= 360
    page.resize(1280)
    assert page.script("return Object.values(sessionStorage)") == [guarded.tokens["watcher"]]
    assert page.script("return [localStorage.length, document.cookie]") == [0, ""]
    browser.refresh()
    page.row("Queues", "other")
    assert page.script("return samples.has('totals')")
    page.script("samples.set('of watcher', {})")
    page.click(".side button")
    page.find("dialog[open] #token")
    assert page.rows("Queues") is None
    page.says(".live", "Not signed in")
    assert page.all(".user") == []
    assert page.script("return sessionStorage.length") == 0
    sign_in(page, guarded.tokens["tenant"])
    page.row("Queues", "tenant.a")
    assert not page.script("return samples.has('of watcher')")
    page.click(".side button")
    page.find("dialog[open] #token")
    page.check_console()


@pytest.fixture
def visit(browser, guarded):
    """Returns a function that opens a view as a user, who signs out at the end."""
    page = Page(browser, guarded.broker.http_endpoint)

    def opened(user, view):
        page.open(view, "dialog[open]")
        sign_in(page, guarded.tokens[user])
        return page

    yield opened
    page.click(".side button")
    page.find("dialog[open] #token")
    page.check_console()


def test_a_refusal_is_shown(visit, guarded):
    """M5, A3: a refused action is shown in its dialog, which stays open; a view in its place."""
    page = visit("keeper", "queue/graves")
    page.click("#redrive")
    page.type("#to", "other")
    page.click("#confirm")
    page.says("dialog .refusal", "write on queue 'other'")
    assert page.find("dialog .refusal").get_attribute("role") == "alert"
    page.click("#cancel")
    page.script("location.hash = '#/peek/other'")
    page.says(".refused", "read on queue 'other'")
    page.says(".live", "Not updated")
    with Client(guarded.broker.endpoint, guarded.tokens["master"]) as master:
        assert master.queue("other").published == 2
        assert master.queue("graves").ready == 1


@pytest.mark.parametrize(
    ("user", "queue", "offered", "release"),
    [
        ("master", "tenant.b", ["peek", "purge"], True),
        ("tenant", "tenant.b", ["peek", "purge"], False),
        ("watcher", "tenant.b", [], False),
        ("watcher", "graves", [], False),
        ("keeper", "graves", ["peek", "redrive", "purge"], False),
    ],
)
def test_nothing_is_offered_that_is_refused(visit, user, queue, offered, release):
    """M5, A2: a user is offered no button, key or tab for an action that is not permitted."""
    page = visit(user, f"queue/{queue}")
    page.until(lambda: page.texts("h1") == [queue] and page.all(".facts"))
    assert [each.get_attribute("id") for each in page.all(".title .actions > *")] == offered
    assert bool(page.all("[aria-label='Release session theirs']")) is release
    whole = user in {"master", "watcher"}
    assert ("Publishers" in " ".join(page.texts("nav a"))) is whole
    page.press("gp")
    assert page.script("return location.hash").startswith("#/publishers" if whole else "#/queue/")


def test_who_may_not_read_sees_nothing_of_dead_letters(guarded):
    """A2, C13: without read permission reasons, sources and bindings of dead letters are hidden."""
    security = Security(token=guarded.tokens["master"])
    with Admin(guarded.broker.endpoint, security=security) as admin:
        admin.declare_queue("dead")
        admin.declare_queue("dying", dead_letter_queue="dead")
        admin.declare_exchange("secret")
        admin.bind("secret", "dead", "key")
    with guarded.client("master") as master:
        reject(master, "dying", "private")
    status, said = ask(guarded, "writer", "/api/queue?name=dead")
    assert (status, said["dead"], said["bindings"], said["sources"]) == (200, None, [], [])
    assert ask(guarded, "writer", "/api/dead_letters")[1]["rows"] == []
    status, said = ask(guarded, "watcher", "/api/queue?name=dead")
    assert (status, said["dead"]["messages"], said["sources"]) == (200, 1, ["dying"])
    assert said["bindings"] == [{"exchange": "secret", "key": "key"}]


def test_the_audit_has_how_an_act_ended(guarded):
    """A8: the audit line of a failed act has its error, not `done`."""
    body = {"queue": "nowhere", "confirm": "nowhere"}
    assert ask(guarded, "master", "/api/purge", body)[0] == 404
    log = guarded.broker.log_file.read_text()
    (line,) = [line for line in log.splitlines() if '"queue": "nowhere"' in line]
    assert '"result": "queue_not_found"' in line


def test_strangers_see_nothing(guarded):
    """A1, A3: without a valid token every request is refused, before its body is checked.

    The requests are sent together: a wrong token's refusal waits for seconds, but only a few of an
    address do. Last here, or the wrong token of another test would wait as long.
    """
    looks = [
        (user, f"/api/{path}", None)
        for user in (None, "guess")
        for path in (*LOOKS, "peek?queue=other")
    ]
    acts = [(None, f"/api/{path}", ["no object"]) for path in ("purge", "redrive", "release")]
    with ThreadPoolExecutor(len(looks + acts)) as threads:
        answers = threads.map(lambda each: ask(guarded, *each), looks + acts)
    assert {(status, said["error"]["code"]) for status, said in answers} == {
        (401, "unauthenticated")
    }
