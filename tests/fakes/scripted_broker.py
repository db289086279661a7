"""A scripted broker in this process: each stream follows the next script, so losses are exact.

It keeps no messages; it records the requests that it received. Scripts are generators over a
stream's requests.
"""
# ruff: noqa: N802, ARG002 - gRPC names the methods and calls them

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import grpc

from ackq import errors
from ackq.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    consuming_pb2,
    consuming_pb2_grpc,
    messages_pb2,
    publishing_pb2,
    publishing_pb2_grpc,
    sessions_pb2,
    sessions_pb2_grpc,
)
from ackq.wire import block
from tests.eventually import SOON_S
from tests.ports import free_ports

HISTORY = "history-1"


class Cut(Exception):  # noqa: N818 - an event of the script, not an error
    """Raised by a script: the stream ends as if the connection was lost."""


def detail(error):
    return messages_pb2.ErrorDetail(code=error.code, message=error.message, fields=error.fields)


def abort(context, error):
    """Ends a call as the broker does."""
    context.set_trailing_metadata((("ackq-error-bin", detail(error).SerializeToString()),))
    context.abort(getattr(grpc.StatusCode, errors.status_of(error)), error.message)


def answer(**kind):
    return publishing_pb2.PublishResponse(header=publishing_pb2.PublishAnswer(**kind))


def opened(history_id=HISTORY, **fields):
    return answer(opened=publishing_pb2.PublishOpened(history_id=history_id, **fields))


def confirm(last, first=0):
    """A confirm of first..last, or without `first` of everything up to last."""
    return answer(
        confirm=publishing_pb2.PublishConfirm(
            first_number=first, last_number=last, multiple=not first
        )
    )


def nack(first, last, error):
    return answer(
        nack=publishing_pb2.PublishNack(first_number=first, last_number=last, reason=detail(error))
    )


def last_number(request):
    data = request.header.data
    return data.first_number + data.rows - 1


def bodies(request):
    return block.decode(request.block, validate=True).batch.column("body").to_pylist()


def data_frames(requests):
    return [each for each in requests if each.header.HasField("data")]


def confirm_all(requests):
    """Confirms every publish, as a well-behaved broker does."""
    for request in requests:
        if request.header.HasField("open"):
            yield opened()
        elif request.header.HasField("data"):
            yield confirm(last_number(request))


def commit_all(requests):
    """Answers every commit and rollback, as a well-behaved broker in transaction mode does."""
    for request in requests:
        if request.header.HasField("open"):
            yield opened()
        elif request.header.HasField("commit"):
            yield answer(transaction=request.header.commit)
        elif request.header.HasField("rollback"):
            yield answer(transaction=request.header.rollback)


def ignore_all(requests):
    """Reads requests, and answers none."""
    for _ in requests:
        pass
    yield from ()


def returned(*numbers, block=b"", why="No queue."):
    """The return of messages that no queue takes, with the reason."""
    reason = detail(errors.UnroutableError(why))
    response = answer(returned=publishing_pb2.PublishReturn(numbers=numbers, reason=reason))
    response.block = block
    return response


def second_returned(request):
    """The return of the second message of a frame, as it came."""
    header, batch = block.decode(request.block)
    return returned(2, block=block.encode(batch.slice(1, 1), routing_key=header.routing_key))


def blocked_until(release):
    """The answers of a broker whose disk is full until the event is set."""
    blocked = answer(blocked=publishing_pb2.PublishBlocked(reason="disk 99 % full"))
    return blocked, held(release), answer(unblocked=publishing_pb2.PublishUnblocked())


def held(release):
    """A step of a script that waits for the event."""

    def step(_):
        assert release.wait(SOON_S)

    return step


def answering(*answers, opening=None, after=next, then=confirm_all, end=None):
    """A script that opens, gives the answers to a first request, and then behaves well or ends.

    Args:
        answers: Frames, or functions of the request that return a frame or None.
        opening: The answer to the open.
        after: Finds the request to answer.
        then: The rest of the script.
        end: The error that the stream ends with instead.
    """

    def script(requests):
        next(requests)
        yield opening or opened()
        request = after(requests)
        for each in answers:
            frame = each(request) if callable(each) else each
            if frame is not None:
                yield frame
        if end is not None:
            raise end
        yield from then(requests)

    return script


def refusing(error):
    """A script that ends the stream with an error instead of opening it."""

    def script(requests):
        next(requests)
        raise error
        yield

    return script


def _well_behaved(requests):
    first = next(requests)
    transactional = first.header.open.mode == publishing_pb2.PUBLISH_MODE_TRANSACTION
    return (commit_all if transactional else confirm_all)(chain((first,), requests))


class Publishing(publishing_pb2_grpc.PublishingServiceServicer):
    """Streams follow `scripts` in turn, then behave well; `streams` has each one's requests."""

    def __init__(self):
        self.scripts = deque()
        self.streams = []
        self.stage_script = None
        self.stages = []
        self.stage_opened = threading.Event()
        self.stage_ended = threading.Event()
        self.commits = []
        self.commit_failures = deque()
        self.operations = deque()
        self.operation_requests = []

    def Publish(self, request_iterator, context):
        received = []
        self.streams.append(received)
        script = self.scripts.popleft() if self.scripts else _well_behaved
        yield from _play(script, _recorded(request_iterator, received), context)

    def Stage(self, request_iterator, context):
        received = []
        self.stages.append(received)
        context.add_callback(self.stage_ended.set)
        self.stage_opened.set()
        yield from _play(
            self.stage_script or store_all, _recorded(request_iterator, received), context
        )

    def CommitBatch(self, request, context):
        self.commits.append(request)
        if self.commit_failures:
            abort(context, self.commit_failures.popleft())
        return publishing_pb2.CommitBatchResponse(rows=sum(each.rows for each in request.stages))

    def AbortBatch(self, request, context):
        return publishing_pb2.AbortBatchResponse(dropped=len(request.stage_ids))

    def ListBatches(self, request, context):
        self.operation_requests.append(request)
        return _next(self.operations, context)

    DropBatch = ListWriters = ForgetWriter = AssignWriter = ListBatches


def store_all(requests):
    """Answers every frame of a stage and its seal."""
    rows = 0
    for request in requests:
        if request.header.HasField("data"):
            rows += request.header.data.rows
            yield publishing_pb2.StageResponse(stored=publishing_pb2.StageStored(rows=rows))
        elif request.header.HasField("seal"):
            seal = request.header.seal
            yield publishing_pb2.StageResponse(
                sealed=publishing_pb2.StageSealed(rows=seal.rows, payload_bytes=seal.payload_bytes)
            )


class Consuming(consuming_pb2_grpc.ConsumingServiceServicer):
    """Streams follow `scripts` in turn, then `keep_open`; `streams` has each one's requests."""

    def __init__(self):
        self.scripts = deque()
        self.streams = []

    def Consume(self, request_iterator, context):
        received = []
        self.streams.append(received)
        script = self.scripts.popleft() if self.scripts else keep_open
        yield from _play(script, _recorded(request_iterator, received), context)


def keep_open(requests):
    """A channel without deliveries, until the client half-closes."""
    for request in requests:
        if request.HasField("open"):
            opened = consuming_pb2.ChannelOpened(outcomes=[1, 2, 3, 4])
            yield consuming_pb2.ConsumeResponse(header=consuming_pb2.ConsumeHeader(opened=opened))


class Sessions(sessions_pb2_grpc.SessionsServiceServicer):
    """Every call takes the next entry of its script: an error to abort with, or the answer."""

    def __init__(self):
        self.horizons = deque()
        self.advances = deque()
        self.fetches = deque()
        self.fetch_requests = []
        self.holds = deque()
        self.hold_requests = []
        self.outcome_stages = deque()
        self.outcome_streams = []
        self.operations = deque()
        self.operation_requests = []
        self.lease_frames = []

    def StageOutcomes(self, request_iterator, context):
        received = []
        self.outcome_streams.append(received)
        received.extend(request_iterator)
        return _next(self.outcome_stages, context)

    def CommitOutcomes(self, request, context):
        self.operation_requests.append(request)
        return _next(self.operations, context)

    AbortOutcomes = SettleSession = RewindSession = CommitOutcomes

    def BrowseLease(self, request, context):
        self.operation_requests.append(request)
        yield from self.lease_frames

    def Horizon(self, request, context):
        return _next(self.horizons, context)

    def Advance(self, request, context):
        return _next(self.advances, context)

    def Fetch(self, request, context):
        self.fetch_requests.append(request)
        for each in self.fetches.popleft():
            if isinstance(each, errors.AckqError):
                abort(context, each)
            yield each

    def Hold(self, request_iterator, context):
        script = self.holds.popleft() if self.holds else beat
        yield from _play(script, _recorded(request_iterator, self.hold_requests), context)


def beat(requests):
    for _ in requests:
        yield sessions_pb2.HoldResponse(heartbeat_ms=10)


class Administration(admin_pb2_grpc.AdminServiceServicer):
    """Answers from `queues`, `redrives` and `browses`."""

    def __init__(self):
        self.redrives = deque()
        self.redriven = []
        self.failures = deque()
        self.queues = {}
        self.warnings = []  # of each declare
        self.browses = []
        self.browse_requests = []

    def ListQueues(self, request, context):
        if self.failures:
            abort(context, self.failures.popleft())
        named = self.queues.values() if not request.queue else [self.queues[request.queue]]
        return admin_pb2.ListQueuesResponse(queues=named)

    def DeclareQueue(self, request, context):
        created = request.queue not in self.queues
        self.queues[request.queue] = admin_pb2.QueueInfo(
            queue=request.queue, queue_id=len(self.queues) + 1, properties=request.properties
        )
        return admin_pb2.DeclareQueueResponse(queue_id=1, created=created, warnings=self.warnings)

    def Redrive(self, request, context):
        self.redriven.append(request)
        return _next(self.redrives, context)

    def Browse(self, request, context):
        self.browse_requests.append(request)
        yield from self.browses


class FakeBroker:
    """A server with the scripted services, on a free port unless one is given."""

    def __init__(self, port=None):
        self.consuming = Consuming()
        self.publishing = Publishing()
        self.sessions = Sessions()
        self.admin = Administration()
        self._server = grpc.server(
            ThreadPoolExecutor(16),
            options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)],
        )
        consuming_pb2_grpc.add_ConsumingServiceServicer_to_server(self.consuming, self._server)
        publishing_pb2_grpc.add_PublishingServiceServicer_to_server(self.publishing, self._server)
        sessions_pb2_grpc.add_SessionsServiceServicer_to_server(self.sessions, self._server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self.admin, self._server)
        port = self._server.add_insecure_port(f"127.0.0.1:{port or free_ports(1)[0]}")
        self.endpoint = f"127.0.0.1:{port}"
        self._server.start()

    def close(self):
        self._server.stop(0).wait()


def _recorded(requests, received):
    for request in requests:
        received.append(request)
        yield request


def _play(script, requests, context):
    try:
        yield from script(requests)
    except Cut:
        context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was cut")
    except errors.AckqError as error:
        abort(context, error)


def _next(script, context):
    step = script.popleft()
    if isinstance(step, errors.AckqError):
        abort(context, step)
    return step
