"""What `ackq why` asks the broker for, and what it leaves out without permissions."""

from unittest.mock import Mock

from ackq.cli.diagnosis.why import gather
from ackq.client import Admin
from ackq.diagnosis.queue_state import diagnose
from ackq.info import Holdings, QueueInfo, ServerInfo, SessionInfo


def test_a_live_reader_after_many_finished_ones():
    """Q9, S8: a live session is found after sixty that are finished, whose names come first."""
    sessions = {f"anonymous-{at}": SessionInfo(session=f"anonymous-{at}") for at in range(60)}
    sessions["nightly"] = SessionInfo(session="nightly", live=True)

    def session(name):
        return sessions[name]

    admin = Mock(
        spec=Admin,
        session=session,
        sessions=lambda finished: [*sessions.values()][: None if finished else 1],
        info=ServerInfo,
        queue=lambda _: QueueInfo(queue="q", ready=1, sessions=[*sessions, "hidden"]),
        holdings=lambda _: Holdings(),
        links=list,
        outbound_links=list,
    )
    facts = gather(admin, "q")
    assert next(iter(facts.sessions)) == "nightly"
    assert "between-triggers" in [each.code for each in diagnose(facts)]
    assert facts.limited
