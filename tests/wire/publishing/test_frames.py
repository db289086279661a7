"""Publishing over the wire, by raw stubs, against a real broker process."""

import secrets

import grpc
import pytest

from ackq import limits
from ackq.errors import (
    ExchangeNotFoundError,
    FencedError,
    InvalidArgumentError,
    MalformedBlockError,
    MessageTooLargeError,
    PublisherForgottenError,
    QueueFullError,
    UnroutableError,
    WrongModeError,
    from_code,
)
from ackq.v1 import admin_pb2, messages_pb2, publishing_pb2
from tests.fakes.blocks import encoded, rows
from tests.fakes.raw_client import Client, PublishCall, error_of


def reason(nack):
    return type(from_code(nack.reason.code, nack.reason.message, {}))


def test_confirms_count_from_one_and_are_cumulative(client):
    """P2: numbers count from 1; a confirm with `multiple` covers everything before it."""
    with client.publisher() as stream:
        stream.publish(1, b"a", b"b", routing_key="q")
        answer = stream.answer().confirm
        assert (answer.last_number, answer.multiple) == (2, True)
        stream.publish(3, b"c", routing_key="q", lowest=3)
        answer = stream.answer().confirm
        assert (answer.last_number, answer.multiple) == (3, True)
    assert client.browse()[0] == [b"a", b"b", b"c"]


def test_every_publish_has_exactly_one_answer(client):
    """P3: many frames in flight, and at half-close every number was answered once; then the end."""
    with client.publisher() as stream:
        for number in range(1, 301):
            stream.publish(number, b"x", routing_key="q")
        stream.half_close()
        assert stream.confirmed(300) == set(range(1, 301))
        with pytest.raises(StopIteration):
            stream.answer()
    assert client.queue().ready == 300


def test_confirmed_persistent_messages_survive_a_kill(broker, own):
    """P4: what was confirmed is on disk."""
    own.publish(b"a", b"b")
    broker.kill()
    broker.restart()
    with Client(broker.endpoint) as again:
        assert again.browse()[0] == [b"a", b"b"]


def test_transient_messages_are_confirmed_and_go_with_a_restart(broker, own):
    """P5: a transient message is confirmed when enqueued, readable, and gone after a restart."""
    with own.publisher() as stream:
        stream.publish(1, b"t", routing_key="q", delivery_mode=2)
        stream.publish(2, b"p", routing_key="q")
        assert stream.confirmed(2) == {1, 2}
    assert own.browse()[0] == [b"t", b"p"]
    broker.restart()
    with Client(broker.endpoint) as again:
        assert again.browse()[0] == [b"p"]


def test_mixed_delivery_modes_in_one_frame(broker, own):
    """P12: rows of a frame may override the mode; each is confirmed under its own number."""
    with own.publisher() as stream:
        stream.publish(1, b"p", b"t", b"d", persistent=[True, False, None], routing_key="q")
        assert stream.confirmed(3) == {1, 2, 3}
    assert own.queue().ready == 3
    broker.restart()
    with Client(broker.endpoint) as again:
        assert again.browse()[0] == [b"p", b"d"]


def test_single_messages(client):
    """P2: a small publisher sends messages instead of a block."""
    messages = [messages_pb2.Message(body=b"a", routing_key="q", headers={"h": "v"})] * 2
    with client.publisher() as stream:
        data = publishing_pb2.PublishData(first_number=1, messages=messages)
        stream.send(publishing_pb2.PublishHeader(lowest_unanswered=1, data=data))
        assert stream.confirmed(2) == {1, 2}
    assert client.browse()[0] == [b"a", b"a"]


def test_unroutable_is_confirmed(client):
    """P7: a message that no queue wants is confirmed once that is known."""
    with client.publisher() as stream:
        stream.publish(1, b"x", routing_key="nobody")
        assert stream.confirmed(1) == {1}


def test_a_return_comes_before_its_confirm(client):
    """P7: a mandatory message comes back, with the reason and the message, before its confirm."""
    with client.publisher() as stream:
        stream.publish(1, b"a", b"b", b"c", routing_key=["nobody", "q", "else"], mandatory=True)
        returned = stream.answer().returned
        assert list(returned.numbers) == [1, 3]
        assert reason(returned) is UnroutableError
        assert rows(stream.returned_block)["body"] == [b"a", b"c"]
        assert stream.confirmed(3) == {1, 2, 3}
    assert client.browse()[0] == [b"b"]


def test_a_full_queue_nacks_with_the_reason(client):
    """P8: a nacked message is in no queue, and the reason names the cause."""
    client.declare("small", max_length=2)
    with client.publisher() as stream:
        stream.publish(1, b"a", b"b", routing_key="small")
        assert stream.confirmed(2) == {1, 2}
        stream.publish(3, b"c", routing_key="small", lowest=3)
        nack = stream.answer().nack
        assert (nack.first_number, nack.last_number, reason(nack)) == (3, 3, QueueFullError)
        assert "small" in nack.reason.message
    assert client.browse("small")[0] == [b"a", b"b"]


def test_a_message_over_the_limit_is_nacked_alone(client):
    """P8: the oversize row is nacked with the limit, the stream lives, its neighbours are taken."""
    with client.publisher() as stream:
        stream.publish(1, b"a", b"x" * (limits.MAX_MESSAGE_BYTES + 1), b"c", routing_key="q")
        nack = stream.answer().nack
        assert (nack.first_number, nack.last_number, reason(nack)) == (2, 2, MessageTooLargeError)
        assert stream.confirmed(2) == {1, 3}
    assert client.browse()[0] == [b"a", b"c"]


def test_an_unknown_exchange_is_nacked(client):
    """P8: a publish to an exchange that is not there is answered, and the stream lives."""
    with client.publisher() as stream:
        stream.publish(1, b"a", routing_key="q", exchange="nowhere")
        assert reason(stream.answer().nack) is ExchangeNotFoundError
        stream.publish(2, b"b", routing_key="q", lowest=2)
        assert stream.answer().confirm.last_number == 2


def test_retransmission_on_a_new_stream_is_not_doubled(client):
    """P10: what was accepted is confirmed again under its number, and stands once."""
    publisher_id = secrets.token_bytes(16)
    with client.publisher(publisher_id) as stream:
        stream.publish(1, b"a", b"b", routing_key="q")
        assert stream.confirmed(2) == {1, 2}
    with client.publisher(publisher_id, resume=True) as stream:
        stream.publish(1, b"a", b"b", b"c", routing_key="q")
        assert stream.confirmed(3) == {1, 2, 3}
    assert client.browse()[0] == [b"a", b"b", b"c"]


def test_retransmission_after_a_kill_is_not_doubled(broker, own):
    """P10: de-duplication survives `kill -9`: some were confirmed, some not, each stands once."""
    publisher_id = secrets.token_bytes(16)
    with own.publisher(publisher_id) as stream:
        stream.publish(1, b"a", b"b", routing_key="q")
        assert stream.confirmed(2) == {1, 2}
        stream.publish(3, b"c", routing_key="q")
        broker.kill()
    broker.restart()
    with Client(broker.endpoint) as again, again.publisher(publisher_id, resume=True) as stream:
        for number, body in enumerate((b"a", b"b", b"c"), 1):
            stream.publish(number, body, routing_key="q")
        assert stream.confirmed(3) == {1, 2, 3}
        assert again.browse()[0] == [b"a", b"b", b"c"]


def test_nacked_numbers_are_handled_afresh(client):
    """P10: a nacked number is not among the accepted ones: sent again, it is published."""
    client.declare("small", max_length=1)
    publisher_id = secrets.token_bytes(16)
    with client.publisher(publisher_id) as stream:
        stream.publish(1, b"a", routing_key="small")
        assert stream.confirmed(1) == {1}
        stream.publish(2, b"b", routing_key="small")
        assert stream.answer().nack.first_number == 2
    client.admin.PurgeQueue(admin_pb2.PurgeQueueRequest(queue="small"))
    with client.publisher(publisher_id, resume=True) as stream:
        stream.publish(2, b"b", routing_key="small", lowest=2)
        assert stream.answer().confirm.last_number == 2
    assert client.browse("small")[0] == [b"b"]


def test_a_second_stream_fences_the_first(client):
    """P10: the older live stream of a publisher ends as fenced."""
    publisher_id = secrets.token_bytes(16)
    with client.publisher(publisher_id) as first, client.publisher(publisher_id, resume=True):
        with pytest.raises(grpc.RpcError) as ended:
            first.answer()
        error, status = error_of(ended.value)
        assert (type(error), status) == (FencedError, "ABORTED")
        assert error.fields["publisher"] == publisher_id.hex()


def test_a_probe_names_what_never_came_and_answers_the_rest(client):
    """P10: a probe gets the missing ranges, and the known numbers are answered again."""
    with client.publisher() as stream:
        stream.publish(1, b"a", b"b", routing_key="q")
        stream.publish(5, b"e", routing_key="q")
        assert stream.answer().confirm.last_number == 2
        assert stream.answer().confirm.last_number == 5
        stream.probe(2, 9)
        probed = stream.answer().probed
        assert list(zip(probed.missing_first, probed.missing_last, strict=True)) == [
            (3, 4),
            (6, 9),
        ]
        again = [stream.answer().confirm for _ in range(2)]
        assert [confirm.last_number for confirm in again] == [2, 5]
        assert (again[1].multiple, again[1].first_number) == (False, 5)


def test_a_forgotten_publisher_is_refused(client):
    """P10: a resume of an id that the broker does not know is refused."""
    with pytest.raises(grpc.RpcError) as ended:
        PublishCall(client, secrets.token_bytes(16), resume=True)
    error, status = error_of(ended.value)
    assert (type(error), status) == (PublisherForgottenError, "FAILED_PRECONDITION")


def test_commit_in_confirm_mode(client):
    """P1: asking a confirm-mode publisher for a commit ends its stream."""
    with client.publisher() as stream:
        commit = publishing_pb2.PublishTransaction(transaction_id=secrets.token_bytes(16))
        stream.send(publishing_pb2.PublishHeader(commit=commit))
        with pytest.raises(grpc.RpcError) as ended:
            stream.answer()
    error, status = error_of(ended.value)
    assert (type(error), status) == (WrongModeError, "FAILED_PRECONDITION")


@pytest.mark.parametrize(
    ("mode", "publisher_id", "expected"),
    [
        (publishing_pb2.PUBLISH_MODE_UNSPECIFIED, bytes(16), InvalidArgumentError),
        (publishing_pb2.PUBLISH_MODE_CONFIRM, b"short", InvalidArgumentError),
    ],
)
def test_openings_that_are_refused(client, mode, publisher_id, expected):
    """P1: a stream opens in exactly one mode that the broker serves."""
    with pytest.raises(grpc.RpcError) as ended:
        PublishCall(client, publisher_id, mode=mode)
    assert type(error_of(ended.value)[0]) is expected


@pytest.mark.parametrize(
    ("count", "block"),
    [(1, b"\xff\xff"), (2, encoded(body=[b"a"])), (0, b"")],
)
def test_malformed_frames_end_the_stream(client, count, block):
    """P8: a frame that is not what it says ends the stream, with the reason; the broker lives."""
    with client.publisher() as stream:
        stream.send_data(1, count, block)
        with pytest.raises(grpc.RpcError) as ended:
            stream.answer()
    assert type(error_of(ended.value)[0]) is MalformedBlockError
    client.publish(b"fine")


def test_the_opening_announces_the_limits(client):
    """I6: a publisher learns what the broker takes, and which history it is in."""
    info = client.admin.ServerInfo(admin_pb2.ServerInfoRequest())
    with client.publisher() as stream:
        assert stream.opened == publishing_pb2.PublishOpened(
            history_id=info.history_id,
            max_frame_bytes=limits.MAX_FRAME_BYTES,
            max_message_bytes=limits.MAX_MESSAGE_BYTES,
        )
