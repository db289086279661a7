"""A session without a broker: it gives prepared answers and records its requests."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from ackq.errors import SessionNotFoundError
from ackq.info import SessionInfo
from ackq.spark.options import options
from ackq.spark.source.reader import AckqStreamReader
from ackq.v1 import sessions_pb2 as pb

SCHEMA = StructType([StructField("delivery_tag", LongType()), StructField("body", BinaryType())])
START = {"v": 1}


class FakeSession:
    """Answers `advance` and `attach` from a queue; an exception in the queue is raised."""

    def __init__(self):
        self.answers = deque()
        self.asked = []
        self.holds = []
        self.batches = []
        self.recorded = SessionInfo(incarnation="i1", queues=["q", "r"])

    def horizon(self):
        self.asked.append("horizon")
        return 77

    def advance(self, request):
        self.asked.append(request)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    attach = advance

    def find(self, _connection, _name):
        if self.recorded is None:
            raise SessionNotFoundError("gone")
        if isinstance(self.recorded, Exception):
            raise self.recorded
        return self.recorded

    def fetch(self, request, names):
        self.asked.append((request, names))
        return iter(self.batches)

    def hold(self, session, incarnation, epoch, token):
        hold = SimpleNamespace(of=(session, incarnation, epoch, token), fenced=None, closed=False)
        hold.close = lambda: setattr(hold, "closed", True)
        self.holds.append(hold)
        return hold


@pytest.fixture
def session():
    return FakeSession()


@pytest.fixture
def make(session):
    """Makes a reader of one queue, of which the broker gives these answers."""

    def make_reader(*answers, kind=AckqStreamReader, **given):
        session.answers.extend(answers)
        wanted = {"endpoint": "b:1", "queue": "q", **given}
        parsed = options.source({name: text for name, text in wanted.items() if text is not None})
        return kind(parsed, SCHEMA, lambda _connection: session, session.find)

    return make_reader


def at(tag, incarnation="i1"):
    """The offset of a query of one broker."""
    return {"v": 1, "session": "s", "incarnation": incarnation, "tag": tag}


def advanced(end_tag, *chunks, incarnation="i1", epoch=1, **fields):
    """The answer to an advance that leased up to `end_tag`."""
    fields |= {"session": "s", "incarnation": incarnation, "epoch": epoch}
    return pb.AdvanceResponse(end_tag=end_tag, chunks=sizes(*chunks), **fields)


def attached(epoch, *chunks, **fields):
    """The answer to an attach."""
    return pb.AttachResponse(epoch=epoch, chunks=sizes(*chunks), **fields)


def sizes(*chunks):
    return [pb.LeaseChunk(last_tag=last, payload_bytes=size) for last, size in chunks]
