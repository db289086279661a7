"""`ackq session release --finished` against a real broker."""

from functools import partial

import pytest

from ackq.v1 import sessions_pb2
from ackq_broker import embedded
from tests.eventually import eventually
from tests.fakes import machine
from tests.fakes.raw_client import Client, holder
from tests.wire.cli.conftest import ackq_on, read
from tests.wire.sessions.test_sessions import HoldCall


@pytest.fixture
def ended(tmp_path):
    """A broker on which a session is finished at once, and a raw client; queue `q` has messages."""
    # A holder that sends no heartbeat is live for longer than a test takes, one that is cut is not.
    low = {"FINISHED_SESSION_S": 0, "HEARTBEAT_MS": 1_000_000, "HOLDER_CUT_GRACE_MS": 0}
    with (
        embedded(sync=False, env=machine.with_limits(tmp_path, low)) as broker,
        Client(broker.endpoint) as client,
    ):
        client.declare()
        client.publish(b"a", b"b")
        yield broker, client


def test_finished_sessions_are_released(ended):
    """S8: `session release --finished` asks, and spares sessions that are live, leased or named."""
    broker, client = ended
    run = partial(ackq_on(broker.endpoint), "session", "release", "--finished")

    def cut(**fields):
        reader = holder()
        opened = client.advance(reader, **{"session": "", **fields})
        HoldCall(client, opened, reader).call.cancel()
        eventually("its absence", lambda: not client.session(opened.session).live)
        return opened.session

    gone, named, leased = cut(), cut(session="named"), cut(open_and_lease=True)
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
