"""The dashboard's requests to a broker process, and their refusals (M5)."""

import json

import pytest

from tests.wire.asking import asked


def ask(served, path, body=None, **headers):
    """Status, headers and JSON of an answer."""
    if body is not None:
        headers = {"Content-Type": "application/json", **headers}
    status, found, text = asked(served.http_endpoint, path, body, **headers)
    return status, found, json.loads(text) if "json" in found.get_content_type() else text


def looked(served, path):
    """The JSON of a successful request."""
    status, headers, said = ask(served, path)
    assert (status, headers.get_content_type()) == (200, "application/json"), said
    return said


def refused(served, path, body=None, **headers):
    """Status and message of a refusal."""
    status, _, said = ask(served, path, body, **headers)
    return status, said["error"]["message"]


def test_the_page_is_from_the_broker_alone(served):
    """M5: the page is three files of the broker, whose policy forbids other sources, inline
    scripts and frames.
    """
    for path, kind in (("", "html"), ("dashboard.css", "css"), ("dashboard.js", "javascript")):
        status, headers, text = ask(served, f"/{path}")
        assert (status, headers.get_content_type()) == (200, f"text/{kind}")
        policy = dict(
            part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";")
        )
        promised = {"default-src": "'none'", "script-src": "'self'", "style-src": "'self'"}
        promised |= {"frame-ancestors": "'none'", "require-trusted-types-for": "'script'"}
        assert promised.items() <= policy.items()
        told = [headers[name] for name in ("X-Content-Type-Options", "Referrer-Policy")]
        assert told == ["nosniff", "no-referrer"]
        assert "Set-Cookie" not in headers
        for elsewhere in ("https://", "innerHTML", "document.cookie", "localStorage"):
            assert elsewhere not in text


def test_looks_say_what_grpc_says(served, contents):
    """M5: the dashboard's figures equal those of gRPC, of one queue and of all."""
    info = contents.queue("orders")
    row = next(
        row for row in looked(served, "/api/queues?limit=100")["rows"] if row["queue"] == "orders"
    )
    one = looked(served, "/api/queue?name=orders")
    for name in ("ready", "unacked", "published", "accepted", "dead_lettered", "payload_bytes"):
        assert row[name] == one[name] == getattr(info, name)
    assert looked(served, "/api/broker")["totals"]["unacked"] == 466


def test_no_look_names_a_holder_token(served, contents):
    """S3: no answer contains a holder's token, with which its reader could be fenced."""
    assert contents
    (nightly,) = [
        row for row in looked(served, "/api/sessions")["rows"] if row["session"] == "nightly"
    ]
    assert sorted(nightly["holder"]) == ["application", "host", "pid", "since_us"]


@pytest.mark.parametrize(
    ("path", "status", "part"),
    [
        ("/api/queue?name=nothing", 404, "nothing"),
        ("/api/queue", 400, "no queue or session"),
        ("/api/peek?queue=nothing", 404, "nothing"),
        ("/api/peek?queue=orders&from=-1", 400, "'from' must be a whole number"),
        ("/api/peek?queue=orders&from=9" + "9" * 30, 400, "'from' must be a whole number"),
        ("/api/queues?sort=colour", 400, "sorted by"),
        ("/api/queues?offset=x", 400, "'offset' must be a whole number"),
    ],
)
def test_looks_that_are_refused(served, contents, path, status, part):
    """M5: an invalid request is refused with the reason."""
    assert contents
    found, message = refused(served, path)
    assert (found, part in message) == (status, True)


CONFIRMED = {"queue": "audit", "confirm": "audit"}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ({"queue": "audit"}, {}, 400),
        ({"queue": "audit", "confirm": "AUDIT"}, {}, 400),
        ({"queue": "audit", "confirm": True}, {}, 400),
        ({"confirm": ""}, {}, 400),
        (["audit", "audit"], {}, 400),
        (CONFIRMED, {"Content-Type": "text/plain"}, 400),
        (CONFIRMED, {"Content-Type": "application/x-www-form-urlencoded"}, 400),
        (CONFIRMED, {"Origin": "https://evil.example"}, 403),
        (CONFIRMED, {"Sec-Fetch-Site": "cross-site"}, 403),
        (CONFIRMED, {"Host": "evil.example"}, 421),
    ],
)
def test_a_purge_that_is_not_confirmed(served, contents, body, headers, status):
    """M5, M1: a purge needs the queue's name and JSON, so that no other site can send it."""
    found, _, said = ask(served, "/api/purge", json.dumps(body), **headers)
    assert found == status
    assert status != 400 or said["error"]["message"]
    assert contents.queue("audit").ready == 10


def test_a_body_that_cannot_be_read(served):
    """M5: an unreadable request body is refused, and is no failure in the broker's log."""
    for body, headers in ((b"[" * 100_000, {}), (b"no gzip", {"Content-Encoding": "gzip"})):
        status, message = refused(served, "/api/purge", body, **headers)
        assert (status, "is not JSON" in message) == (400, True)
    assert "Traceback" not in served.log_file.read_text()


@pytest.mark.parametrize("path", ["/api/purge", "/api/redrive", "/api/release"])
def test_a_look_changes_nothing(served, path):
    """M5: purge, redrive and release need a POST with a JSON object of bounded size."""
    assert ask(served, path)[0] == 405
    assert refused(served, path, b"{")[0] == 400
    assert refused(served, path, b"{}")[0] == 400
    assert ask(served, path, b"x" * (2 << 20))[0] == 413


def test_a_live_reader_is_not_released_by_accident(served, contents):
    """S8: a session with a live reader is released only with `fence`."""
    status, message = refused(served, "/api/release", b'{"session": "nightly"}')
    assert (status, "nightly" in message) == (409, True)
    assert contents.session("nightly").leased == 25
