"""Origin keys: equal for each delivery of a message, different for different messages."""

import pyarrow as pa
import pytest

from ackq.wire.columns import HEADERS, TIMESTAMP
from ackq_link.keys import KeyRule, fingerprints


def rows(**columns):
    types = {"body": pa.binary(), "headers": HEADERS, "published_at": TIMESTAMP}
    arrays = {name: pa.array(v, types.get(name, pa.string())) for name, v in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def keys(rule, batch):
    found = KeyRule(rule).of(batch)
    return [found.keys[at : at + 16] for at in range(0, len(found.keys), 16)], found


HEADERS_OF_ONE = [[("a", "b")], [("a", "b"), ("c", "d")], [("a", "bc"), ("", "d")]]
HEADERS_OF_ONE += [[("a", None)], [("a", "")]]
DIFFERENT = [
    *(rows(body=[body]) for body in (b"x", b"", None)),
    *(rows(body=[b"x"], message_id=[text]) for text in ("", "a")),
    rows(body=[b"x"], correlation_id=["a"]),
    rows(body=[b"x"], reply_to=["a"]),
    rows(body=[b"xa"], message_id=[""]),
    *(rows(body=[b"x"], headers=[pairs]) for pairs in HEADERS_OF_ONE),
    *(rows(body=[b"x"], published_at=[time]) for time in (0, 1)),
]


def test_different_messages_have_different_fingerprints():
    """L3: any difference counts, also where one text ends and the next begins."""
    found = [fingerprints(each)[0] for each in DIFFERENT]
    assert len(set(found)) == len(DIFFERENT)


def test_a_fingerprint_rests_on_the_row_alone():
    """L3: independent of batch, place, absent columns and the order of headers."""
    pairs = [("b", "1"), ("a", "x")]
    batch = rows(body=[b"0", b"x", b"y"], headers=[None, pairs, None], message_id=[None, None, "m"])
    alone = rows(body=[b"x"], headers=[pairs[::-1]])
    assert fingerprints(batch)[1] == fingerprints(batch.slice(1, 1))[0] == fingerprints(alone)[0]
    assert fingerprints(batch)[0] == fingerprints(rows(body=[b"0"]))[0]


def test_keys_do_not_change_with_a_version():
    """L2: keys are compared with those of messages stored by older versions."""
    (key,), found = keys("auto", rows(body=[b"x"], message_id=["m"]))
    assert key.hex() == "36f09edb81eaa9416fbe3d5ecd730508"
    assert found.checks.hex() == "a554be4064a6de20"
    assert fingerprints(rows(body=[b"x"]))[0].hex() == "ccacf7b8b1c4f1f0643d2a3862954eee"


@pytest.mark.parametrize("rule", ["auto", "message_id", "header:id"])
@pytest.mark.parametrize("absent", ["", None])
def test_messages_without_an_id(rule, absent):
    """L2: keyed by their fingerprint, and counted."""
    name = "id" if rule == "header:id" else "other"
    headers = [[(name, "m")], [(name, absent)]]
    batch = rows(body=[b"x", b"y"], message_id=["m", absent], headers=headers)
    if rule == "header:id":
        batch = batch.select(["body", "headers"])
    (first, second), found = keys(rule, batch)
    assert (found.content, found.without_id) == ([False, True], 1)
    assert second == fingerprints(batch)[1]
    assert first == keys("auto", rows(body=[b"z"], message_id=["m"]))[0][0]
    batch = batch.select(["body"])
    found = KeyRule(rule).of(batch)
    assert found.keys == b"".join(fingerprints(batch))
    assert (found.content, found.without_id) == ([True, True], 2)


def test_other_rules():
    """L2, L4: `fingerprint` and `none`; one id has one key, and its checks tell content apart."""
    batch = rows(body=[b"x"], message_id=["m"])
    content = KeyRule("fingerprint").of(batch)
    assert content.keys == fingerprints(batch)[0]
    assert (content.content, content.without_id) == ([True], 0)
    none = KeyRule("none").of(batch)
    assert (none.keys, none.content) == (bytes(16), None)
    both, found = keys("auto", rows(body=[b"x", b"y"], message_id=["m", "m"]))
    assert both[0] == both[1]
    assert found.checks[:8] != found.checks[8:]
    assert (found.content, found.without_id) == (None, 0)
