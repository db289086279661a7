"""Permission needs that depend on more than the request's names; tests/wire has the whole table."""

from types import SimpleNamespace

import pytest

from ackq.v1 import links_pb2, publishing_pb2, sessions_pb2
from ackq.wire import frame
from ackq.wire.fetch_key import fetch_key
from ackq_broker.core.views import SessionAccess
from ackq_broker.security import permissions
from ackq_broker.security.permissions import needs

TOKEN = b"t" * 16
SESSION = SessionAccess("s", "i", 2, TOKEN, ("a", "b"))


def session_access(_state, name, incarnation, *, retained=False):
    there = name == "s" or incarnation == "i"
    queues = (*SESSION.queues, *(("before",) if retained else ()))
    return [SESSION._replace(queues=queues)] if there else []


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Replaces the views of the core with those of a broker with one session and one writer."""
    views = SimpleNamespace(
        session_access=session_access,
        sessions_of_run=lambda _, *run: ["s"] if run == ("run", "user") else [],
        queues_like=lambda _, pattern: ["a", "c"] if pattern == "*" else [],
        committed_target=lambda _, writer: "exchange/a%2Fb/key/more" if writer == "w" else "",
        link_queue=lambda _, name: "a" if name == "l" else "",
    )
    monkeypatch.setattr(permissions, "views", views)


def found(method, request):
    """Returns the needs of a request as text."""
    return [str(each) for each in needs(f"ackq.v1.{method}", request, None, "user")]


def test_the_queues_of_a_session():
    """A2: an advance needs read on each queue it names, finds or holds; only named ones show."""
    request = sessions_pb2.AdvanceRequest(session="s", queues=["x"])
    of_session = "read on each queue of session 's'"
    assert found("SessionsService.Advance", request) == [
        "read on queue 'x'",
        of_session,
        of_session,
    ]
    request = sessions_pb2.AdvanceRequest(queue_pattern="*")
    assert found("SessionsService.Advance", request) == ["read on each queue like '*'"] * 2
    request = sessions_pb2.AttachRequest(session="s", incarnation="unknown")
    assert found("SessionsService.Attach", request) == []  # it is not found
    request = sessions_pb2.AttachRequest(session="t", incarnation="i")
    assert found("SessionsService.Attach", request) == [of_session] * 2


def test_the_writer_of_a_stage():
    """A2, K3: opening a stage needs write on the writer's target, as it drops older stages."""
    for writer, needed in (
        ("w", ["write on exchange 'a/b'"]),
        ("new", ["write on any queue or exchange"]),
        ("txn/app/queue/q", ["write on queue 'q'"]),
    ):
        opening = publishing_pb2.StageOpen(writer=writer)
        request = frame.Frame(publishing_pb2.StageHeader(open=opening))
        assert found("PublishingService.Stage", request) == needed


def test_the_queue_of_a_link():
    """A2: a link's process needs write on its queue, an operator configure, also if unknown."""
    opening = links_pb2.LinkHeader(open=links_pb2.LinkOpen(link="l", queue="a"))
    assert found("LinksService.Link", frame.Frame(opening)) == [
        "write on queue 'a'",
        "write on the queue of link 'l'",
    ]
    beat = links_pb2.LinkHeader(heartbeat=links_pb2.LinkHeartbeat())
    assert found("LinksService.Link", frame.Frame(beat)) == []
    for name in ("l", "none"):
        request = links_pb2.PauseLinkRequest(link=name)
        text = f"configure on the queue of link '{name}'"
        assert found("LinksService.PauseLink", request) == [text]
    report = links_pb2.OutboundReport(link="l", queue="b", target="there")
    request = links_pb2.ReportOutboundRequest(report=report)
    assert found("LinksService.ReportOutbound", request) == ["read on queue 'b'"]


@pytest.mark.parametrize(
    ("epoch", "key", "proven"),
    [
        (2, fetch_key(TOKEN, "i", 2), True),
        (2, fetch_key(TOKEN, "i", 1), False),
        (2, fetch_key(b"o" * 16, "i", 2), False),
        (2, TOKEN, False),
        (2, b"", False),
        (1, b"", True),  # the core refuses it, and names the present holder
    ],
)
def test_the_key_of_a_fetch(epoch, key, proven):
    """A4: the key of a fetch must be of the present epoch and its holder."""
    request = sessions_pb2.FetchRequest(session="s", incarnation="i", epoch=epoch, key=key)
    missing = [each for each in found("SessionsService.Fetch", request) if "key" in each]
    assert bool(missing) is not proven


def test_nobody_has_the_key_of_a_session_without_a_holder(monkeypatch):
    """A4: a session without a holder has an empty token, from which no valid key can be made."""
    monkeypatch.setattr(f"{__name__}.SESSION", SESSION._replace(token=b""))
    key = fetch_key(b"", "i", 2)
    request = sessions_pb2.FetchRequest(session="s", incarnation="i", epoch=2, key=key)
    assert "key" in found("SessionsService.Fetch", request)[-1]


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("BrowseLease", sessions_pb2.BrowseLeaseRequest(session="s", incarnation="i")),
        ("PlanRetained", sessions_pb2.PlanRetainedRequest(session="s")),
        ("Advance", sessions_pb2.AdvanceRequest(session="s", rewind=sessions_pb2.RewindPoint())),
    ],
)
def test_retained_batches_need_their_queues(method, request_):
    """A2, S13, S14: also read on the queues that the session has read before."""
    lease = found("SessionsService.BrowseLease", sessions_pb2.BrowseLeaseRequest(session="s"))
    more = found(f"SessionsService.{method}", request_)
    assert len(more) > len(lease)


def test_the_owner_of_a_lease():
    """A2: an unknown session as lease owner is refused like a hidden one."""
    owner = sessions_pb2.LeaseOwner(session="none")
    request = sessions_pb2.CommitOutcomesRequest(owner=owner)
    assert found("SessionsService.CommitOutcomes", request) == [
        "read on each queue of session 'none'"
    ]
    request = sessions_pb2.CommitOutcomesRequest(owner=sessions_pb2.LeaseOwner(run_id="run"))
    assert len(found("SessionsService.CommitOutcomes", request)) == 2


@pytest.mark.parametrize(
    ("writer", "target", "expected"),
    [
        ("v", "", ["write on any queue or exchange"]),
        ("v", "columns/key", ["write on any queue or exchange"]),
        ("txn/app/columns", "columns", ["write on any queue or exchange"]),
        ("txn/a%2Fb/exchange/x%2Fy/k", "", ["write on exchange 'x/y'"]),
        ("txn/app/queue/q", "queue/q", ["write on queue 'q'"]),
        ("txn/app/queue/q", "queue/own", ["write on queue 'own'", "write on queue 'q'"]),
        ("v", "queue/a/b", ["write on queue 'a/b'"]),
        ("v", "exchange/a%2Fb", ["write on exchange 'a/b'"]),
        ("w", "queue/q", ["write on queue 'q'", "write on exchange 'a/b'"]),
    ],
)
def test_the_target_of_a_writer(writer, target, expected):
    """A2, A10: a commit needs write on its target, on the last batch's, and on the name's."""
    request = publishing_pb2.CommitBatchRequest(writer=writer, target=target)
    assert found("PublishingService.CommitBatch", request) == expected
