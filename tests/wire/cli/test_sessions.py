"""`ackq session release --finished` against a real broker."""

import json
import re
from functools import partial

import pytest

from ackq.v1 import sessions_pb2
from ackq_broker import embedded
from tests.eventually import eventually
from tests.fakes import machine
from tests.fakes.raw_client import Client, holder
from tests.wire.asking import asked
from tests.wire.cli.conftest import ackq_on, read
from tests.wire.sessions.test_sessions import HoldCall


@pytest.fixture
def ended(tmp_path):
    """A broker on which a session is finished at once, and a raw client; queue `q` has messages."""
    # A holder that sends no heartbeat is live for longer than a test takes, one that is cut is not.
    low = {"FINISHED_SESSION_S": 0, "HEARTBEAT_MS": 1_000_000, "HOLDER_CUT_GRACE_MS": 0}
    with (
        embedded(sync=False, http=True, env=machine.with_limits(tmp_path, low)) as broker,
        Client(broker.endpoint) as client,
    ):
        client.declare()
        client.publish(b"a", b"b")
        yield broker, client


def cut(client, **fields):
    """Opens a session, unnamed by default, whose reader goes at once; returns its name."""
    reader = holder()
    opened = client.advance(reader, **{"session": "", **fields})
    HoldCall(client, opened, reader).call.cancel()
    eventually("its absence", lambda: not client.session(opened.session).live)
    return opened.session


def test_those_that_are_finished_are_in_no_list(ended):
    """S8, M2, M5: the dashboard neither lists nor counts finished sessions; metrics name none.

    Of many readers of a queue the dashboard shows those that hold messages first.
    """
    broker, client = ended
    cut(client)
    leased = cut(client, open_and_lease=True)

    def look(path):
        return asked(broker.http_endpoint, path)[2]

    assert [row["session"] for row in json.loads(look("/api/sessions"))["rows"]] == [leased]
    assert json.loads(look("/api/broker"))["sessions"] == 1
    assert re.findall('ackq_session_live{session="(.*)"}', look("/metrics/queues")) == [leased]
    assert "ackq_sessions 2.0" in look("/metrics")
    for number in range(100):
        client.advance(holder(), session=f"a{number:03}")

    def readers():
        return [row["session"] for row in json.loads(look("/api/queue?name=q"))["readers"]]

    eventually("those that hold messages", readers, lambda names: names[:1] == [leased])


def test_finished_sessions_are_released(ended):
    """S8: `session release --finished` asks, and spares sessions that are live, leased or named."""
    broker, client = ended
    run = partial(ackq_on(broker.endpoint), "session", "release", "--finished")
    gone, named, leased = (
        cut(client),
        cut(client, session="named"),
        cut(client, open_and_lease=True),
    )
    live = client.advance(holder(), session="").session
    listed = run("--dry-run")
    assert listed.stdout.splitlines()[1:] == [f"{gone}  q", "1 finished session to release"]
    asked = run()
    assert (asked.exit_code, "nobody can be asked" in asked.stderr) == (2, True)
    assert client.session(gone).session == gone
    assert read(run("--yes", "--json")) == {"sessions": [gone], "released": True}
    assert read(run("--json", "--yes")) == {"sessions": [], "released": True}
    left = client.sessions.ListSessions(sessions_pb2.ListSessionsRequest(finished=True)).sessions
    assert {each.session for each in left} == {named, leased, live}
    assert client.queue().unacked == 2
