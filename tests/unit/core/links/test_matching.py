"""Deliveries that match messages which are, or were, in the local queue (L4, L6, L7)."""

import pytest
from pyroaring import BitMap

from ackq_broker.core import commands as c
from tests.unit.core.harness import Harness
from tests.unit.core.link_process import LinkProcess, accept, expanded


def test_what_is_redelivered_is_matched(process: LinkProcess) -> None:
    """L6: a redelivery is matched by its id, marked or not, and keeps its old place."""
    process.store(["a", "b", "c"])
    process.subscribe()
    assert process.positions(["a", "b"]) == [1, 2]
    assert process.positions(["x", "c"], redelivered=True) == [4, 3]
    assert process.harness.browse("q") == ["a", "b", "c", "x"]
    info = process.info()
    assert (info.taken, info.stored, info.matched_held) == (7, 4, 3)


def test_equal_messages_are_as_many_as_were_delivered(process: LinkProcess) -> None:
    """L6: each delivery of a subscription takes another entry, in one frame and in several."""
    assert process.positions(["a", "a"]) == [1, 2]
    assert process.positions(["a"]) == [3]
    process.subscribe()
    assert process.matched(["a", "a", "b"]) == [True, True, False]
    assert process.positions(["a", "a", "a"]) == [3, 5, 6]
    process.subscribe()
    assert process.positions(["a"] * 6) == [1, 2, 3, 5, 6, 7]


def test_what_is_held_is_matched_before_what_is_settled(process: LinkProcess) -> None:
    """L6: no message is permitted while an equal one, which it may be, is held."""
    process.store(["a", "a", "a"])
    accept(process.harness, 1, 2)
    process.subscribe()
    assert expanded(process.store(["a"])) == [(1, 3, True, False)]
    assert expanded(process.store(["a", "a"])) == [(2, 1, True, True), (3, 2, True, True)]


def test_an_id_that_is_used_again(process: LinkProcess) -> None:
    """L3, L4: other content under a known id is another message; it is stored and counted."""
    process.store(["a", "b"])
    assert process.matched(["other"], ids=["a"]) == [False]
    assert process.info().id_reused == 1
    process.subscribe()
    assert process.matched(["third", "a"], ids=["a", "a"]) == [False, True]
    assert process.info().id_reused == 2


def test_an_id_that_is_used_twice_in_a_frame(process: LinkProcess) -> None:
    """L4: the first message of an id has it; later ones of its frame are compared with it."""
    process.store(["a", "b", "a", "a"], ids=["i", "i", "i", "j"])
    assert process.info().id_reused == 1
    process.store(["a", "b"], ids=["i", "i"])
    assert process.info().id_reused == 3


def test_a_message_without_a_key_is_stored(process: LinkProcess) -> None:
    """L2: a message without a key cannot be matched; its entry ends with its subscription."""
    process.store(["a", "a"], ids=["", ""])
    assert process.info().held == 2
    process.subscribe()
    assert process.info().held == 0
    assert process.matched(["a", "a"], ids=["", ""], redelivered=True) == [False, False]
    accept(process.harness, 3)
    assert process.permit() == [3]


def test_content_that_never_had_a_permit_comes_again_marked_or_not(process: LinkProcess) -> None:
    """L6, L7: one of several equal messages must come again, and not every broker marks it."""
    process.store(["a", "a", "b"], content=True)
    process.subscribe()
    assert process.matched(["a", "c"], content=True) == [True, False]
    assert process.matched(["a", "a", "a"], content=True, redelivered=True) == [True, False, False]
    assert process.matched(["b", "b"], content=True) == [True, False]
    assert process.info().ambiguous == 0


def test_content_that_is_not_marked_is_new_beside_a_permit(process: LinkProcess) -> None:
    """L7: an entry that may have been acknowledged is not spent by an unmarked delivery."""
    process.store(["a", "a"], content=True)
    accept(process.harness, 1)
    assert process.permit() == [1]
    process.subscribe()
    assert process.matched(["a", "a"], content=True) == [True, False]
    assert process.info().ambiguous == 0
    assert process.matched(["a"], content=True, redelivered=True) == [False]
    assert process.info().ambiguous == 1


def test_content_that_is_marked_goes_first(process: LinkProcess) -> None:
    """L6: in a frame with both, the marked delivery takes the entry that must come again."""
    process.store(["a"], content=True)
    process.subscribe()
    assert expanded(process.store(["a", "a"], content=True, redelivered=BitMap([1]))) == [
        (1, 2, False, False),
        (2, 1, True, False),
    ]


def test_a_key_of_content_is_no_id(process: LinkProcess) -> None:
    """L2: a key of content matches no id, and an id no key of content."""
    process.store(["a"])
    process.store(["b"], content=True)
    process.subscribe()
    assert process.matched(["a"], content=True, redelivered=True) == [False]
    assert process.matched(["b"], redelivered=True) == [False]


@pytest.mark.parametrize("drop", [False, True])
def test_content_whose_acknowledgement_may_have_left(harness: Harness, *, drop: bool) -> None:
    """L7: it is stored and counted, once for each entry in doubt, or dropped on demand."""
    harness.declare("q")
    process = LinkProcess(harness, drop_ambiguous=drop)
    process.subscribe()
    process.store(["a", "a", "b"], content=True)
    accept(harness, 1, 3)
    assert process.permit() == [1, 3]
    process.subscribe()
    reply = process.store(["a", "a", "b", "b"], content=True, redelivered=True)
    if drop:
        rows = [(1, 2, True, False), (2, 1, True, True), (3, 3, True, True), (4, 4, False, False)]
        assert expanded(reply) == rows
        assert process.info().ambiguous == 0
    else:
        assert [matched for *_, matched, _ in expanded(reply)] == [True, False, False, False]
        assert process.info().ambiguous == 2
        assert process.matched(["a"], content=True, redelivered=True) == [False]
        assert process.info().ambiguous == 2
        assert process.info().in_doubt == 0
    process.state()


def test_a_proven_acknowledgement_of_content_comes_back(harness: Harness) -> None:
    """L7: it is stored and counted, even if those in doubt are dropped; an id is matched."""
    harness.declare("q")
    process = LinkProcess(harness, drop_ambiguous=True)
    process.subscribe()
    process.store(["a"], content=True)
    process.store(["i"])
    accept(harness, 1, 2)
    process.permit()
    process.prove(2)
    process.subscribe()
    assert process.matched(["a"], content=True, redelivered=True) == [False]
    assert process.info().ambiguous == 1
    assert expanded(process.store(["i"]))[0][1:] == (2, True, True)


def test_another_link_has_its_own_entries(process: LinkProcess) -> None:
    """L4: one link does not know the entries of another."""
    process.store(["a"])
    other = LinkProcess(process.harness, "other", source="amqp://elsewhere/queue")
    other.subscribe()
    assert other.matched(["a"]) == [False]


def test_matched_rows_are_no_rows_of_the_block(process: LinkProcess) -> None:
    """L5: matched rows of different lengths before, between and after the stored ones."""
    harness = process.harness
    process.store(["a", "bbb", "c"])
    process.subscribe()
    assert process.positions(["a", "xx", "bbb", "yyyy", "z", "c"]) == [1, 4, 2, 5, 6, 3]
    assert harness.browse("q") == ["a", "bbb", "c", "xx", "yyyy", "z"]
    assert harness.info("q").payload_bytes == 5 + 7
    process.subscribe()
    reply: c.StoredLinked = process.store(["z", "yyyy"])
    assert reply.block_id is None
    assert harness.info("q").payload_bytes == 12
