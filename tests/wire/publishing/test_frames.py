"""Publishing over the wire, by raw stubs, against a real broker process."""

import pytest

from ackq import errors, limits
from ackq.v1 import admin_pb2, publishing_pb2
from tests.fakes.blocks import encoded, rows
from tests.fakes.raw_client import PublishCall, refused_with, refused_with_status


def reason(nack):
    return type(errors.from_code(nack.reason.code, nack.reason.message, {}))


def test_a_return_comes_before_its_confirm(client):
    """P7: a mandatory unroutable message is returned with reason and body, before its confirm."""
    with client.publisher() as stream:
        stream.publish(1, b"a", b"b", b"c", routing_key=["nobody", "q", "else"], mandatory=True)
        returned = stream.answer().returned
        assert list(returned.numbers) == [1, 3]
        assert reason(returned) is errors.UnroutableError
        assert rows(stream.returned_block)["body"] == [b"a", b"c"]
        assert stream.confirmed(3) == {1, 2, 3}
    assert client.browse()[0] == [b"b"]


def test_a_message_over_the_limit_is_nacked_alone(client):
    """P8: an oversized row is nacked alone with the limit, and its neighbours are confirmed."""
    with client.publisher() as stream:
        stream.publish(1, b"a", b"x" * (limits.MAX_MESSAGE_BYTES + 1), b"c", routing_key="q")
        nack = stream.answer().nack
        found = (nack.first_number, nack.last_number, reason(nack))
        assert found == (2, 2, errors.MessageTooLargeError)
        assert stream.confirmed(2) == {1, 3}
    assert client.browse()[0] == [b"a", b"c"]


def test_openings_that_are_refused(client):
    """P1: a publish stream needs a mode that the broker serves, and an id of 16 bytes."""
    for mode, publisher_id in ((0, bytes(16)), (1, b"short")):
        refused_with(errors.InvalidArgumentError, PublishCall, client, publisher_id, mode=mode)


@pytest.mark.parametrize(("mode", "fields"), [(2, {}), (1, {"transaction_id": b"t" * 16})])
def test_a_frame_of_the_other_mode_ends_the_stream(client, mode, fields):
    """P1, P13: a frame of the other mode ends the stream, and nothing of it is published."""
    with client.publisher(mode=mode) as stream:
        stream.send_data(1, 1, encoded(body=[b"a"], routing_key="q"), **fields)
        refused_with_status(errors.WrongModeError, "FAILED_PRECONDITION", stream.answer)
    assert client.queue().ready == 0


@pytest.mark.parametrize(
    ("count", "block"),
    [(1, b"\xff\xff"), (2, encoded(body=[b"a"])), (0, b"")],
)
def test_malformed_frames_end_the_stream(client, count, block):
    """P8: a malformed frame ends the stream with the reason; the broker goes on."""
    with client.publisher() as stream:
        stream.send_data(1, count, block)
        refused_with(errors.MalformedBlockError, stream.answer)
    client.publish(b"fine")


@pytest.mark.parametrize("name", ["message_id", "routing_key"])
def test_text_that_is_not_utf8_refuses_its_frame_alone(client, name):
    """P8: a frame with text that is not UTF-8 is nacked alone, and its neighbours are confirmed."""
    good = encoded(body=[b"a"], message_id=["1"], routing_key=["q"])
    columns = {"body": [b"b"], "message_id": ["1"], "routing_key": ["q"]}
    text = columns[name][0].encode()
    bad = encoded(**columns | {name: ["\x7f" * len(text)]}).replace(b"\x7f" * len(text), b"\xff")
    with client.publisher() as stream:
        for number, block in enumerate([good, bad, good], 1):
            stream.send_data(number, 1, block)
        stream.half_close()
        answers = [each.header for each in stream.call]
        (nack,) = [each.nack for each in answers if each.HasField("nack")]
        assert (nack.first_number, nack.last_number) == (2, 2)
        assert reason(nack) is errors.MalformedBlockError
        assert f"'{name}'" in nack.reason.message
    assert client.browse()[0] == [b"a"] * 2


def test_the_opening_announces_the_limits(client):
    """I6: the answer to a publisher's open has the broker's limits and its history."""
    info = client.admin.ServerInfo(admin_pb2.ServerInfoRequest())
    with client.publisher() as stream:
        assert stream.opened == publishing_pb2.PublishOpened(
            history_id=info.history_id,
            max_frame_bytes=limits.MAX_FRAME_BYTES,
            max_message_bytes=limits.MAX_MESSAGE_BYTES,
            commit_with_data=True,
        )
