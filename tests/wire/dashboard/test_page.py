"""The dashboard in a real browser (M5)."""

import json
import re

import pytest
from selenium.webdriver.common.keys import Keys

import ackq_broker
from ackq.client import Channel, Publisher
from ackq.v1 import links_pb2
from tests.fakes.raw_client import holder
from tests.wire.dashboard.contents import (
    HOSTILE,
    LONG_LINK,
    LONG_QUEUE,
    LONG_SESSION,
    LONG_SOURCE,
    PID,
    QUERY,
    linked,
    reject,
)
from tests.wire.dashboard.page import Page

NONE = "\N{EN DASH}"
VIEWS = (
    *("queues", "queue/orders", "queue/orders.dead", "peek/orders.dead", "sessions"),
    *("links", "link/gone", f"link/{LONG_LINK}", f"queue/{LONG_QUEUE}", f"peek/{LONG_QUEUE}"),
    *("dead", "publishers", "queue/nothing", "link/nothing"),
)


def names(page):
    return [row[0].splitlines()[0] for row in page.rows("Queues") or ()]


# --- display ---


def test_queues_with_the_oldest_first(page):
    """M5: the queue table shows the oldest first, with figures and problems; totals are above."""
    page.open()
    (first, *_) = page.rows("Queues")
    assert first[1].endswith("s")
    assert "full" in page.row("Queues", "audit")[0]
    assert "not durable" in page.row("Queues", "binary")[0]
    assert page.row("Queues", "empty")[1:4] == [NONE, "0", "0"]
    assert (page.row("Queues", "orders.dead")[6], page.row("Queues", "invoices")[3]) == ("65",) * 2
    tiles = page.facts(".tile .label", ".tile .value")
    assert (tiles["Dead letters"], tiles["Unacked"]) == ("65", "466")


def test_sorted_and_filtered_at_the_broker(page):
    """M5: the broker sorts queues by heading, and filters by part of the name and by state.

    A filter without matches says so, and offers to clear it.
    """
    page.open()
    page.click("#main th[title*='total number published'] button")
    page.says("th[aria-sort=descending]", "Published")
    page.until(lambda: names(page)[0] == "orders")
    page.type("#filter", "ORD")
    page.until(lambda: names(page) == ["orders", "orders.dead"])
    page.choose("#show", "With dead letters")
    page.until(lambda: names(page) == ["orders.dead"])
    page.says(".pager", f"1{NONE}1 of 1 that match")
    page.type("#filter", "there is no such queue")
    page.says(".empty", "No queue matches")
    page.click(".empty button")
    page.until(lambda: "orders" in names(page))


@pytest.fixture
def hurried(page):
    """The dashboard with hurried timers."""
    with page.hurried():
        yield page


@pytest.mark.usefixtures("hurried")
def test_rates_come_from_two_looks(page, served):
    """M5: the page computes rates from two readings, as the broker keeps no history."""
    page.open()
    with Publisher(served.endpoint, routing_key="flow", mandatory=True) as out:
        while page.row("Queues", "flow")[4] in {NONE, "0"}:
            out.publish("one more")
            out.flush()
    page.until(lambda: page.all("svg.in polyline"))
    assert "a second" in page.find("svg.in").get_attribute("aria-label")


def test_a_queue(page):
    """M5: a queue's page shows its sessions by query, batch and attempts, bindings and bounds."""
    page.open("queue/orders")
    billing = page.row("Sessions that read this queue", "billing")
    host = "host · process 1 · billing job"
    assert (billing[1], billing[3:8]) == ("400", ["7", "1", NONE, QUERY, host])
    assert page.rows("Bindings") == [["events", "order.#"], ["events", "refund.*"]]
    facts = page.facts()
    assert facts["Bound"] == "5,000 messages, then reject-publish"
    assert facts["Dead-letter queue"] == "orders.dead"


def test_a_queue_with_consumers(page):
    """M5: a queue's page shows what each channel holds, and which consumer is at its prefetch."""
    page.open("queue/invoices")
    channel = page.row("Channels that hold messages of this queue", "worker-3:4711")
    assert "connected" in channel[0]
    assert (channel[1], channel[2] != NONE) == ("40", True)
    (printer,) = page.rows("Consumers of this queue")
    assert "no room" in printer[0]
    assert printer[1:] == ["40", "40", "worker-3:4711"]
    assert page.row("Sessions that read this queue", "nightly")[1] == "25"


def test_a_publisher_and_a_queue_that_retains(page, served):
    """M5, S13: a queue's page shows how much accepted messages it retains, and since when.

    A publisher that is connected is shown by its label.
    """
    with Publisher(served.endpoint, routing_key="flow", label="till-7") as out:
        out.publish("x").result()
        page.open("publishers")
        row = page.row("Publishers that are connected", "till-7")
        assert (row[1], row[4]) == ("confirm", "not blocked")
    with Channel(served.endpoint) as channel:
        (message,) = channel.get("flow", 1)
        message.accept().result()
    page.open("queue/flow")
    shown = page.facts()["Accepted messages stay for"]
    assert re.fullmatch(r"1 h 0 min: \d+ B, .+ back", shown), shown


def test_dead_letters_by_cause(page):
    """M5, C13: dead letters are shown by cause, with reasons, the most frequent first."""
    page.open("dead")
    rejected, limit = page.rows("Dead letters of orders.dead by cause")
    assert rejected[:3] == ["rejected", "orders", "60"]
    assert limit[:3] == ["over its delivery limit", "late", "5"]
    assert page.rows("Reasons of orders.dead")[0] == ["no id", "rejected", "orders", "40"]


@pytest.fixture
def live_link(contents):
    with linked(contents):
        yield LONG_LINK


def test_links(page, live_link):
    """M5, L26: the links page shows held messages, state, and why a message was set aside."""
    page.open("links")
    caption = "Links, the oldest held message first"
    page.until(lambda: "set aside" in page.row(caption, live_link)[0])
    long = page.row(caption, live_link)
    assert "live" in long[0]
    assert long[1:4] == [LONG_SOURCE, LONG_QUEUE, "2"]
    assert long[7:] == [f"h · process {PID}"]
    assert page.find(".badge.bad").get_attribute("title") == f"bad {HOSTILE}"
    assert "absent" in page.row(caption, "gone")[0]
    page.type("#filter", "GONE")
    page.until(lambda: len(page.rows(caption)) == 1)
    page.click("tbody a")
    page.until(lambda: page.texts("h1") == ["gone"])
    page.says(".note", "no process runs it")


def test_a_link(page, live_link):
    """M5, L26: a link's page has each field of `ackq link show`, its obstacles, and its report."""
    page.open(f"link/{live_link}")
    page.says(".note", f"cannot bring a message of {LONG_SOURCE}: bad {HOSTILE}.")
    facts = page.facts()
    missing = {field.name for field in links_pb2.LinkInfo.DESCRIPTOR.fields} - {
        each.replace(" ", "_") for each in facts
    }
    assert missing == {"holder", "report", "opened_us", "held_oldest_age_ms"}
    assert {"opened", "held oldest age"} <= facts.keys()
    assert (facts["ack"], facts["held"], facts["paused"]) == ("settled", "2", "no")
    assert (facts["set aside reason"], facts["window messages"]) == (f"bad {HOSTILE}", "9")
    shown = (facts["host"], facts["pid"], facts["application"])
    assert shown == ("h", str(PID), "test")
    assert "token" not in facts
    page.open("link/gone")
    assert page.facts()["ack"] == "stored"


# --- messages ---


def test_a_peek_changes_nothing(page, contents):
    """M5, Q5: a peek changes no positions, deliveries or states."""
    before = contents.queue("orders.dead"), contents.browse("orders.dead")
    page.open("peek/orders.dead")
    assert len(page.all(".message")) == 20
    page.click("#peek-on")
    page.until(lambda: page.texts(".place")[:1] == ["#21"])
    after = contents.queue("orders.dead"), contents.browse("orders.dead")
    before[0].oldest_age_ms = after[0].oldest_age_ms = 0
    assert before == after


def test_json_is_shown_as_it_came(page):
    """M5: JSON bodies are indented, and keep every digit of a number too large for a double."""
    page.open("peek/orders.dead")
    page.click("summary")
    shown = page.find("pre.json").text
    assert '"id": 9007199254740993,' in shown
    assert json.loads(shown)["lines"] == [{"sku": "A-0000", "count": 2, "price": 19.9}]
    headers = page.facts("td", "tbody th")
    assert headers["no id"] == "ackq-dead-reason"


@pytest.mark.parametrize(
    ("place", "kind", "preview", "shown"),
    [
        (0, "hex", "00 01 02 03", "0000  00 01 02 03"),
        (1, "text", "xxxx", "xxxx"),
        (2, "", "(empty)", ""),
        (3, "text", '{"cut": "éé', '{"cut": "éé'),
        (4, "hex", "61 00 62 1b", "0000  61 00 62 1b"),
    ],
)
def test_bodies(page, place, kind, preview, shown):
    """M5: bodies are shown as text or hex; large ones truncated, control characters visible."""
    page.open("peek/binary")
    assert page.texts(".preview")[place].startswith(preview)
    page.all("summary")[place].click()
    if kind:
        assert page.find(f"pre.{kind}").text.startswith(shown)
        assert ("the first 16.0 KiB of" in page.find(".kinds").text) is (place in {1, 3})
    else:
        page.says(".inside", "The body is empty.")


# --- hostile names ---


@pytest.mark.parametrize(
    "view", ["queues", "sessions", "dead", "queue/{}", "peek/{}", "queue/orders.dead"]
)
def test_names_are_text(page, view):
    """M5: hostile names, keys, headers, bodies and reasons are shown as text, never as HTML."""
    quoted = page.script("return encodeURIComponent(arguments[0])", HOSTILE)
    page.open(view.format(quoted))
    for summary in page.all("summary"):
        summary.click()
    page.until(lambda: HOSTILE in page.find("#main").text)
    assert page.all("img, #main script") == []
    assert page.browser.title.endswith("ackq")


def test_what_cannot_be_seen_is_made_visible(page):
    """M5: invisible and direction-changing characters are shown as escapes."""
    page.open("peek/hidden")
    shown = "pay\\u202eload\\u200b"
    assert page.texts(".preview") == [shown]
    page.click("summary")
    page.until(lambda: shown in page.texts(".inside dd"))
    assert page.find("pre.text").text == shown


# --- actions ---


def test_a_purge_needs_the_name(page, contents):
    """M5, Q4: a purge needs the queue's name typed in full, and reports how many went.

    Escape leaves its dialog without effect, and restores the focus.
    """
    contents.declare("old")
    contents.publish(b"a", b"b", queue="old")
    page.open("queue/old")
    page.click("#purge")
    page.says("dialog[open]", "removes the 2 ready messages")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog[open]"))
    assert page.browser.switch_to.active_element.get_attribute("id") == "purge"
    assert contents.queue("old").ready == 2
    page.click("#purge")
    assert not page.find("#confirm").is_enabled()
    page.type("#typed", "ol")
    assert not page.find("#confirm").is_enabled()
    page.press("d", Keys.ENTER)
    page.says("#toast", "Purged 2 messages of old.")
    assert contents.queue("old").ready == 0
    page.until(lambda: not page.find("#purge").is_enabled())
    contents.delete("old")


def test_a_redrive(page, contents):
    """M5, Q6: a redrive moves the oldest dead letters of a count, or by cause and reason.

    It may go to another queue; known reasons are offered, and other dead letters stay.
    """
    contents.declare("tombs")
    contents.declare("lived", dead_letter_queue="tombs")
    contents.declare("check")
    reject(contents, "lived", *["no id", "no price"] * 2)
    page.open("queue/tombs")
    page.click("#redrive")
    page.says("dialog", "This moves 4 dead letters back to the queues they came from")
    page.type("#most", "1")
    page.click("#confirm")
    page.says("#toast", "Redrove 1 message of tombs")
    page.click("#redrive")
    page.choose("#cause", "rejected")
    page.type("#reason", "no price")
    page.type("#to", "check")
    page.says("dialog", "dead letters of the cause rejected with exactly this reason to check")
    offered = page.script(
        "return [...document.querySelectorAll('#reasons option')].map((o) => o.value)"
    )
    assert sorted(offered) == ["no id", "no price"]
    page.click("#confirm")
    page.says("#toast", "Redrove 2 messages of tombs to check.")
    found = [contents.browse(name)[0] for name in ("lived", "tombs", "check")]
    assert found == [[b"0"], [b"2"], [b"1", b"3"]]
    for name in ("lived", "tombs", "check"):
        contents.delete(name, force=True)


def test_a_redrive_in_parts(page):
    """M5, Q6: a long redrive is made of the calls that its dialog first named; Cancel ends it."""
    page.open("queue/orders.dead")
    page.script(
        """const fetched = window.fetch;
           window.asked = [];
           window.fetch = (path, options) => path !== "api/redrive" ? fetched(path, options)
             : new Promise((done) => window.asked.push([options.body, () => done(
                 new Response('{"messages": 1, "last_position": 1, "more": true, "left": 9}'))]));
           window.answer = () => window.asked.at(-1)[1]();"""
    )
    page.click("#redrive")
    page.click("#confirm")
    page.says("#confirm", "Working")
    page.type("#reason", "another")
    page.script("answer()")
    page.says("dialog", "1 message moved so far.")
    page.until(lambda: page.script("return asked.length") == 2)
    page.click("#cancel")
    page.script("answer()")
    page.says("#toast", "Redrove 2 messages of orders.dead; 9 stay.")
    calls = [json.loads(body) for body in page.script("return asked.map(([body]) => body)")]
    assert [(each["reason"], each["last_position"]) for each in calls] == [("", 0), ("", 1)]


def test_a_release(page, contents):
    """M5, S5, S8: a released session's messages are ready again; a live reader needs a tick.

    The dialog names its process.
    """
    page.open("sessions")
    page.until(lambda: "live" in page.row("Sessions, the oldest lease first", "nightly")[0])
    page.click("[aria-label='Release session nightly']")
    page.says("dialog", "A live reader holds it, process 1 on host")
    assert not page.find("#confirm").is_enabled()
    page.click("#cancel")
    assert contents.session("nightly").leased == 25
    contents.declare("loan")
    contents.publish(b"a", b"b", queue="loan")
    contents.open(holder(), session="lender", queues=["loan"])
    page.open("queue/loan")
    page.click("[aria-label='Release session lender']")
    page.click("#fence")
    page.click("#confirm")
    page.says("#toast", "Released 2 messages of lender.")
    assert contents.queue("loan").ready == 2
    contents.delete("loan", force=True)


# --- keys, sizes, colours, labels ---


def test_by_keyboard(page):
    """M5: the keyboard suffices from the list to a message and back."""
    page.open()
    page.press("/")
    page.press("orders", Keys.ESCAPE)
    page.until(lambda: names(page) == ["orders", "orders.dead"])
    page.press("jj")
    page.until(lambda: page.browser.switch_to.active_element.text == "orders.dead")
    assert page.script("return document.activeElement.matches(':focus-visible')")
    page.press(Keys.ENTER)
    page.until(lambda: page.texts("h1") == ["orders.dead"])
    page.find("#peek")
    page.press("p")
    page.find("summary")
    page.press("j", Keys.SPACE)
    page.find("pre.json")
    page.press(Keys.ESCAPE)
    page.until(lambda: page.texts("h1") == ["orders.dead"])
    page.press("gs")
    page.until(lambda: page.rows("Sessions, the oldest lease first"))
    page.press("?")
    page.says("dialog[open]", "Keyboard shortcuts")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog[open]"))


@pytest.mark.parametrize(
    ("view", "button", "said"),
    [
        (f"queue/{LONG_QUEUE}", "#purge", LONG_QUEUE),
        ("dead", "button[aria-label='Redrive orders.dead']", "orders.dead"),
    ],
)
def test_a_dialog_on_a_phone(page, view, button, said):
    """M5: a dialog fits a phone's screen, with a name of any length on its buttons."""
    page.resize(360, 812)
    page.open(view)
    page.click(button)
    page.says("dialog[open]", said)
    assert page.script("return document.documentElement.scrollWidth") <= 360
    assert page.script(
        "const d = document.querySelector('dialog'); return d.scrollWidth <= d.clientWidth"
    )


def test_a_long_name_has_its_whole(page):
    """M5: a long name is cut to two lines in a list, with the whole name as a tooltip."""
    page.resize(360, 812)
    page.open("sessions")
    assert page.find(f"bdi[title='{LONG_SESSION}']")
    page.open("queues")
    assert page.find(f"bdi[title='{LONG_QUEUE}']")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read(page, theme):
    """M5: each text colour has a contrast of at least 4.5 on each background it is used on."""
    page.theme(theme)
    page.open()
    grounds = {
        "text": "page panel raised accent-soft",
        "muted": "page panel raised",
        "accent": "page panel raised accent-soft",
        "bad": "panel bad-soft",
        "warn": "panel warn-soft",
        "ok": "panel ok-soft",
        "on-solid": "bad-solid",
    }
    weak = []
    for text, places in grounds.items():
        for ground in places.split():
            light, dark = sorted((colour(page, text), colour(page, ground)), reverse=True)
            if (light + 0.05) / (dark + 0.05) < 4.5:
                weak.append((text, ground))
    assert weak == []
    assert (colour(page, "page") < 0.1) is (theme == "dark")


def colour(page, name):
    """The luminance of a colour of the page."""
    text = page.script(
        "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0])",
        f"--{name}",
    )
    parts = [int(text.strip()[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("view", VIEWS)
def test_for_a_screen_reader_and_a_phone(page, view):
    """M5: controls have names, tables captions and headings, and messages are announced.

    Nothing is wider than a phone's screen.
    """
    page.open(view)
    for summary in page.all("summary")[:1]:
        summary.click()
        page.find(".inside")
    controls = page.all("a, button, input, select, summary, nav")
    shown = [each for each in controls if each.is_displayed()]
    assert [each.get_attribute("outerHTML") for each in shown if not each.accessible_name] == []
    assert all(table.accessible_name for table in page.all("table"))
    assert page.script(
        """return [...document.querySelectorAll("table")].every((t) =>
             [...t.rows].every((r) => r.querySelector("th[scope]")))"""
    )
    assert page.find("#toast").get_attribute("aria-live") == "polite"
    assert page.find("#announcer").get_attribute("role") == "alert"
    assert (len(page.all("[aria-current=page]")), len(page.all("h1"))) == (1, 1)
    for width in (360, 320):
        page.resize(width, 812)
        assert page.script("return document.documentElement.scrollWidth") <= width


@pytest.mark.usefixtures("hurried")
def test_a_refresh_leaves_what_is_there(page):
    """M5: a refresh keeps the row elements, so that nothing flickers and the focus stays."""
    page.open()
    page.find("tbody a").send_keys("")
    page.script(
        """document.querySelector("tbody a").focus();
           window.seen = {looks: 0, changed: 0};
           const fetched = window.fetch;
           window.fetch = (...args) => { window.seen.looks += 1; return fetched(...args); };
           new MutationObserver((all) => {
             for (const one of all) for (const node of [...one.addedNodes, ...one.removedNodes])
               if (node.nodeType === 1 && !node.closest("svg")) window.seen.changed += 1;
           }).observe(document.querySelector("#main table"), {childList: true, subtree: true});"""
    )
    page.until(lambda: page.script("return window.seen.looks") >= 6)
    assert page.script("return window.seen.changed") == 0
    assert page.script("return document.activeElement.matches('tbody a')")


def test_sessions_say_who_is_away(page):
    """M5, S5: a lease without a live reader is marked, after a heartbeat: asked last of these."""
    page.open("sessions")
    page.until(lambda: "no reader" in page.row("Sessions, the oldest lease first", "billing")[0])
    assert "live" in page.row("Sessions, the oldest lease first", "nightly")[0]


# --- broker unavailable, or without queues ---


def test_without_users_nobody_signs_in(page):
    """M5, A1: without users no sign-in, name or sign-out is shown, despite an old token."""
    page.open()
    page.script("sessionStorage.setItem('ackq-token', 'old')")
    page.browser.refresh()
    page.row("Queues", "orders")
    page.says(".live", "Live")
    assert page.texts(".side") == ["Live\n?"]
    page.script("sessionStorage.clear()")


@pytest.mark.usefixtures("hurried")
def test_what_is_not_updated_is_not_live(page):
    """M5: a peek and an overdue answer are not shown as live; a missing queue is polled."""
    page.open("peek/orders.dead")
    page.says(".live", "Not updated")
    page.open("queue/nothing", ".refused")
    page.says(".refused", "'nothing'")
    page.says(".live", "Live")
    page.open()
    page.says(".live", "Live")
    page.script("window.fetch = () => new Promise(() => {})")
    page.says(".live", "Waiting")


def test_what_was_hidden_is_not_live(page):
    """M5: a page that was hidden shows its old figures as live only after an answer."""
    page.open()
    page.says(".live", "Live")
    shown = page.script(
        """window.fetch = () => new Promise(() => {});
           state.seen -= 3600000;
           document.dispatchEvent(new Event("visibilitychange"));
           return document.querySelector(".live").innerText;"""
    )
    assert shown == "Waiting"


def test_a_broker_that_goes_and_comes_back(browser, tmp_path):
    """M5: a broker that is down is reported; the old content stays, and updates resume."""
    with ackq_broker.embedded(tmp_path / "data", http=True) as running:
        page = Page(browser, running.http_endpoint).open()
        page.says(".empty", "This broker has no queues yet")
        running.kill()
        page.says(".banner.bad", f"No answer from the broker at {running.http_endpoint}.")
        assert page.browser.title.startswith("No answer")
        page.says("#announcer", "The broker does not answer.")
        page.says(".empty", "This broker has no queues yet")
        running.restart()
        page.until(lambda: not page.all(".banner.bad"))
        page.says("#toast", "The broker is back.")
        page.says(".live", "Live")
        page.check_console()
