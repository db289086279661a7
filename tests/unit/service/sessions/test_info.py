"""Which sessions an operator sees (S8)."""

from ackq import limits
from ackq.v1 import sessions_pb2 as pb
from ackq_broker.core import views
from ackq_broker.service.sessions.info import finished
from tests.unit.service.sessions.test_service_timeout import HEARTBEAT_S, READER, Broker

DAY_US = 24 * 3600 * 1_000_000


def listed(broker, **request):
    answer = broker.call(broker.service.list_sessions(pb.ListSessionsRequest(**request)))
    return [each.session for each in answer.sessions]


def test_finished():
    """S8: a session without name, lease and holder is finished after a day."""
    broker = Broker()
    name = broker.advance(session="").session
    (ended,) = views.list_sessions(broker.engine.core.state, name)
    for changes, live, now_us, expected in (
        ({}, False, 2 * DAY_US, True),
        ({}, False, 2 * DAY_US - 1, False),
        ({}, True, 9 * DAY_US, False),
        ({"named": True}, False, 9 * DAY_US, False),
        ({"end_tag": 6}, False, 9 * DAY_US, False),
    ):
        changed = ended._replace(heard_us=DAY_US, **changes)
        assert finished(changed, now_us, live=live) == expected


def test_a_finished_session_is_listed_where_it_is_asked_for_and_goes_on(monkeypatch):
    """S4, S8: a finished session is listed only on request, and goes on at its tag afterwards."""
    monkeypatch.setattr(limits, "FINISHED_SESSION_S", 0)
    broker = Broker()
    opened = broker.advance(session="", session_timeout_ms=0)
    name = opened.session
    step = {"session": name, "incarnation": opened.incarnation, "session_timeout_ms": 0}
    assert broker.advance(**step).end_tag == 2
    broker.now += 2 * HEARTBEAT_S
    assert listed(broker) == [name]  # it holds messages
    assert broker.advance(**step, start_tag=2).end_tag == 2
    assert listed(broker) == [name]  # its holder is live
    broker.now += 2 * HEARTBEAT_S
    assert listed(broker) == []
    assert listed(broker, finished=True) == listed(broker, session=name) == [name]
    broker.start()
    broker.now += 2 * HEARTBEAT_S  # the holder in the journal counts as live until then
    other = pb.Holder(token=b"o" * 16, host=READER.host, pid=2)
    assert broker.advance(**step, start_tag=2, holder=other).end_tag == 2
    assert listed(broker) == [name]
