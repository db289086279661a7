"""The start of an engine from a data directory."""

from ackq_broker.core import commands
from ackq_broker.engine.recovery import recover, wait_synced
from ackq_broker.journal.failpoints import unarmed
from tests.unit.service.channel_streams import PUBLISHER


async def test_a_stream_that_ends_behind_the_stop(tmp_path):
    """I1, P10: a stream that outlasts the stop's grace writes no record, and is no failure.

    The next start lets its publisher continue.
    """
    for resume in (False, True):
        recovered = recover(tmp_path / "data", sync=False, failpoint=unarmed)
        await wait_synced(recovered)
        engine = recovered.engine
        engine.decide(commands.OpenPublisher(PUBLISHER, resume=resume))
        await engine.close()
        sequence = engine.core.sequence
        engine.end(commands.ClosePublisherStream(PUBLISHER))
        engine.end(commands.DropStage(b"s" * 16))
        assert (engine.core.sequence, engine.failure) == (sequence, None)
