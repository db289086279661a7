"""A delivered message."""

from types import SimpleNamespace

import pytest

from ackq.client import Message


@pytest.mark.parametrize(("stored", "body"), [(b"a", b"a"), (b"", b""), (None, b"")])
def test_a_body_is_bytes(stored, body):
    """The body is bytes, and empty for a message published without one."""
    content = SimpleNamespace(value=lambda _name, _row: stored)
    assert Message(content, 0, 1, None).body == body
