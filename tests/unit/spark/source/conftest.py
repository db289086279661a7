"""A session without a broker: it gives prepared answers and records its requests."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from ackq.errors import SessionNotFoundError
from ackq.info import SessionInfo
from ackq.v1 import sessions_pb2 as pb


class FakeSession:
    """Answers `advance` and `attach` from a queue; an exception in the queue is raised."""

    def __init__(self):
        self.answers = deque()
        self.asked = []
        self.holds = []
        self.batches = []
        self.recorded = SessionInfo(incarnation="i1", queues=["q", "r"])
        self.looked_up = []

    def horizon(self):
        self.asked.append("horizon")
        return 77

    def advance(self, request):
        return self._answer(request)

    def attach(self, request):
        return self._answer(request)

    def find(self, _connection, name):
        self.looked_up.append(name)
        if self.recorded is None:
            raise SessionNotFoundError("gone")
        return self.recorded

    def fetch(self, request, names):
        self.asked.append((request, names))
        return iter(self.batches)

    def hold(self, session, incarnation, epoch, token):
        hold = SimpleNamespace(of=(session, incarnation, epoch, token), fenced=None, closed=False)
        hold.close = lambda: setattr(hold, "closed", True)
        self.holds.append(hold)
        return hold

    def _answer(self, request):
        self.asked.append(request)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def session():
    return FakeSession()


@pytest.fixture
def advanced():
    """Makes the answer to an advance that leased up to `end_tag`."""

    def make(end_tag, *chunks, incarnation="i1", epoch=1, **fields):
        return pb.AdvanceResponse(
            session="s",
            incarnation=incarnation,
            epoch=epoch,
            end_tag=end_tag,
            chunks=[pb.LeaseChunk(last_tag=last, payload_bytes=size) for last, size in chunks],
            **fields,
        )

    return make
