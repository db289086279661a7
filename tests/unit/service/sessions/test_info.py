"""Which sessions an operator sees (S8)."""

from ackq_broker.core import views
from ackq_broker.service.sessions.info import finished
from tests.unit.service.sessions.test_service_timeout import Broker

DAY_US = 24 * 3600 * 1_000_000


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
