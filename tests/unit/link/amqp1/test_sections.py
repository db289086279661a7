"""Sections of an encoded AMQP 1.0 message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq_link.amqp1 import sections

HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"
DATA = b"\x00\x53\x75\xa0\x02ab"


def test_sections_and_their_places():
    """Sections are found in sequence, with short and long descriptors and sizes."""
    long = b"\x00\x80" + (0x75).to_bytes(8, "big") + b"\xb0\x00\x00\x00\x01c"
    message = HEADER + DATA + long
    found = list(sections.split(message))
    assert [each.code for each in found] == [0x70, 0x75, 0x75]
    assert [sections.binary(message, each) for each in found[1:]] == [b"ab", b"c"]
    assert found[-1].end == len(message)


@pytest.mark.parametrize(
    "value", [b"\x40", b"\x41", b"\x52\x05", b"\x60\x00\x01", b"\x70" + bytes(4)]
)
def test_a_value_of_a_fixed_width(value):
    """The type of a fixed-width value gives its length."""
    (found,) = sections.split(b"\x00\x53\x77" + value)
    assert found.end - found.value == len(value)


@given(st.binary(max_size=60))
def test_any_bytes(message):
    """Any bytes are split to the last byte, or refused."""
    try:
        found = list(sections.split(message))
    except ValueError:
        return
    assert [each.start for each in found[1:]] == [each.end for each in found[:-1]]
    assert not found or (found[0].start, found[-1].end) == (0, len(message))
