"""Bounds on texts of clients that the broker keeps or returns (I6)."""

import pytest

from ackq import limits
from ackq.errors import AckqError, AlreadyHeldError, InvalidArgumentError, QueueNotFoundError
from ackq.v1 import sessions_pb2
from ackq_broker.service.transport.fields import error_detail, shorten
from tests.fakes.raw_client import holder, refused, refused_with


def test_texts_are_cut_between_characters():
    """I6: a text that is too long is truncated at a character, and stays valid UTF-8."""
    assert shorten("short", 5) == "short"
    assert shorten("shorter", 6) == "sho..."
    assert shorten("\u00fc" * 4, 6) == "\u00fc..."


def test_an_error_fits_its_metadata():
    """I6: an error fits into gRPC's 8 KiB of metadata, beyond which the call would be dropped."""
    told = error_detail(AckqError("\u00fc" * 100_000, **{f"f{n}": "v" * 100_000 for n in range(8)}))
    assert told.ByteSize() + 3 * len(told.message.encode()) < 8 * limits.KIB


def test_an_error_about_a_long_name_arrives(client):
    """I6: an error about an unknown queue arrives, however long the queue's name is."""
    assert isinstance(refused(client.queue, "\u00fc" * 10_000)[0], QueueNotFoundError)


def test_labels_are_cut_before_they_are_kept(client):
    """I6, S3: a holder's labels are truncated, so that an error naming it is not too large."""
    huge = sessions_pb2.Holder(token=b"1" * 16, host="h" * 20_000, application="a" * 1_000_000)
    client.advance(huge)
    assert isinstance(refused(client.advance, holder())[0], AlreadyHeldError)
    assert len(client.session().holder.application) <= 4 * limits.MAX_NAME_BYTES


@pytest.mark.parametrize("name", ["writer", "run_id", "execution_id"])
def test_a_huge_identifier_is_refused(client, name):
    """I6, K3: a commit with a huge writer, run or execution id is refused, and a stage."""
    huge = {name: "n" * 2000}
    error = refused_with(InvalidArgumentError, client.commit, **huge)
    assert "2000 bytes" in error.message
    if name == "writer":
        refused_with(InvalidArgumentError, client.stage, [b"x"], stage_id=b"s" * 16, **huge)
