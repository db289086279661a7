"""Administration: requests, answers and errors."""

import pytest

from ackq import errors
from ackq.client import Admin, close_channels
from ackq.info import BatchInfo, WriterInfo
from ackq.v1 import admin_pb2, publishing_pb2
from tests.fakes.scripted_broker import FakeBroker


@pytest.fixture
def admin(broker):
    with Admin(broker.endpoint) as client:
        yield client


def test_warnings_of_a_declare_are_logged(broker, admin, caplog):
    """Q1: the answer's warnings are also logged, for callers that ignore the answer."""
    broker.admin.warnings.append("It has no effect: 100 %.")
    assert admin.declare_queue("q").warnings == ("It has no effect: 100 %.",)
    assert [each.getMessage() for each in caplog.records] == ["It has no effect: 100 %."]


def test_redrive_goes_on_until_the_range_is_done(broker, admin):
    """Q6: repeated calls keep to the message count and to the first answer's last position."""
    for messages, left, more in ((3, 7, True), (3, 4, True), (1, 3, False)):
        answer = {"messages": messages, "left": left, "more": more, "last_position": 90}
        broker.admin.redrives.append(admin_pb2.RedriveResponse(**answer))
    done = admin.redrive("dead", first_position=5, max_messages=7)
    assert (done.messages, done.left) == (7, 3)
    asked = broker.admin.redriven
    assert {each.first_position for each in asked} == {5}
    assert [(each.last_position, each.max_messages) for each in asked] == [(0, 7), (90, 4), (90, 1)]


def test_call_the_server_does_not_have(admin):
    """A call that the server does not implement raises `UnsupportedError`."""
    with pytest.raises(errors.UnsupportedError, match="does not offer this call"):
        admin.info()


def test_a_timeout_of_centuries(broker):
    """A timeout that ends after gRPC's last date is none that is over."""
    broker.admin.queues["q"] = admin_pb2.QueueInfo(queue="q")
    assert Admin(broker.endpoint, timeout_s=999_999 * 86_400.0).queue("q").queue == "q"


def writers(*names, more=False):
    found = [publishing_pb2.WriterInfo(writer=name) for name in names]
    return publishing_pb2.ListWritersResponse(writers=found, more=more)


def batches(*numbers, more=False):
    found = [publishing_pb2.BatchInfo(writer="w", batch_id=number) for number in numbers]
    return publishing_pb2.ListBatchesResponse(batches=found, more=more)


def test_lists_come_in_pages(broker, admin):
    """K3: lists are asked for page by page, each after the last of the page before."""
    broker.publishing.operations += [batches(0, 1, more=True), batches(2)]
    assert admin.batches("q") == [BatchInfo(writer="w", batch_id=number) for number in range(3)]
    broker.publishing.operations += [writers("a", "b", more=True), writers("c")]
    assert admin.writers(idle_s=1.5) == [WriterInfo(writer=name) for name in "abc"]
    last = publishing_pb2.BatchKey(writer="w", batch_id=1)
    assert broker.publishing.operation_requests == [
        publishing_pb2.ListBatchesRequest(queue="q"),
        publishing_pb2.ListBatchesRequest(queue="q", after=last),
        publishing_pb2.ListWritersRequest(age_ms=1500),
        publishing_pb2.ListWritersRequest(age_ms=1500, after="b"),
    ]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda admin: admin.declare_queue("q", overflow="no"), "one of reject-publish, drop-head"),
        (lambda admin: admin.declare_exchange("x", "headers"), "one of direct, fanout, topic"),
        (lambda admin: admin.drop_batch("w", -1), "batch_id"),
        (lambda admin: admin.settle_session("s", "released", [(-1, 1)]), "first tag"),
        (lambda admin: admin.settle_session("s", "nacked", [(1, 1)]), "accepted, failed"),
        (lambda admin: admin.browse_lease("s", columns=["colour"]), "colour"),
    ],
)
def test_bad_arguments_are_refused_before_the_call(admin, ask, said):
    """K3, S8: a bad number, outcome or column is refused before the call."""
    with pytest.raises(errors.InvalidArgumentError, match=said):
        ask(admin)


def test_admin_outlives_its_channel(broker):
    """A gRPC channel that was closed, or made before a fork, is not used again."""
    admin = Admin(broker.endpoint)
    assert admin.queues() == []
    close_channels()
    assert admin.queues() == []
    assert list(admin.browse("q")) == []


def test_broker_that_is_back_is_found_at_once(broker):
    """A restarted broker is reached at once, without gRPC's own back-off of seconds."""
    admin = Admin(broker.endpoint)
    broker.close()
    for _ in range(4):  # about 3 s
        with pytest.raises(errors.BrokerUnavailableError):
            admin.queues()
    back = FakeBroker(int(broker.endpoint.rpartition(":")[2]))
    assert admin.queues() == []
    close_channels()
    back.close()


@pytest.mark.parametrize(
    ("ask", "answers"),
    [
        (lambda admin: admin.writer("w"), [writers()]),
        (lambda admin: admin.batch("w", 1), [batches()]),
        (Admin.writers, [writers(more=True)]),
        (Admin.batches, [batches(more=True)]),
        (Admin.writers, [writers("w", more=True)] * 2),
        (Admin.batches, [batches(1, more=True)] * 2),
    ],
)
def test_a_list_that_no_broker_answers(broker, admin, ask, answers):
    """P8: an empty answer for one item and pages without end are internal errors."""
    broker.publishing.operations.extend(answers)
    with pytest.raises(errors.InternalError, match="violates the protocol"):
        ask(admin)
