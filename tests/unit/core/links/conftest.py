"""The fixture of a link that has subscribed, with the queue that it stores messages in."""

import pytest

from tests.unit.core.link_process import LinkProcess


@pytest.fixture
def process(harness):
    """A link of the queue q, with `ack=settled`, that has subscribed."""
    harness.declare("dead")
    harness.declare("q", dead_letter_queue="dead")
    process = LinkProcess(harness)
    process.subscribe()
    return process
