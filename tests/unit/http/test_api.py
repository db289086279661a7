"""The dashboard API: a list answer of many rows yields to other work between rows."""

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

from ackq.v1 import sessions_pb2 as pb
from ackq_broker.http.api import Api
from ackq_broker.http.context import Context
from ackq_broker.security.authorization import Authorization
from tests.fakes.journal import HeldEngine

NAMES = [f"s{number}" for number in range(100)]


async def test_others_are_served_between_two_sessions():
    """M5, I6: other work runs between two rows; 100 rows in one piece blocked it for over 13 ms."""

    def answer(asked):
        return pb.ListSessionsResponse(sessions=[pb.SessionInfo(session=asked.session)])

    # Sessions that are already on disk: an answer waits for nothing.
    sessions, seen = Mock(list_sessions=AsyncMock(side_effect=answer)), set()
    context = Context(
        HeldEngine(), None, None, sessions, SimpleNamespace(look=None), Authorization()
    )
    request = SimpleNamespace(headers={}, remote="")

    async def others():
        while True:
            seen.add(sessions.list_sessions.await_count)
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    rows = await Api(context)._session_rows(request, NAMES)
    task.cancel()
    assert [row["session"] for row in rows] == NAMES
    assert len(seen) >= len(NAMES)
