"""Publishing over the wire, by raw stubs, against a real broker process."""

import pytest

from ackq import errors, limits
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import PublishCall, refused_with, refused_with_status


def reason(nack):
    return type(errors.from_code(nack.reason.code, nack.reason.message, {}))


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
