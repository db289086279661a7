"""Reports of an outbound link: when they reconnect, and when they end."""

import logging

import pytest

from ackq.client import Broker
from ackq.errors import BrokerUnavailableError, LimitError, PermissionDeniedError, UnsupportedError
from ackq.v1 import links_pb2 as pb
from ackq_link.edge.outbound import OutboundReporter


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (BrokerUnavailableError, True),
        (LimitError, True),
        (UnsupportedError, False),
        (PermissionDeniedError, False),
    ],
)
def test_what_ends_the_reports(error, again, caplog):
    """L26: an older broker or a missing permission ends them; the log says so once."""
    with OutboundReporter(Broker("localhost:1"), pb.ReportOutboundRequest) as reporter:
        assert reporter._may_reconnect(error("words")) is again
        with caplog.at_level(logging.WARNING):
            reporter._on_end(error("words"))
    (record,) = caplog.records
    assert (
        "The local broker does not show this outbound link to its operators: words"
        in record.getMessage()
    )


def test_a_closed_one_says_nothing(caplog):
    """L26: a reporter that is closed with its process logs nothing."""
    with caplog.at_level(logging.WARNING):
        OutboundReporter(Broker("localhost:1"), pb.ReportOutboundRequest).close()
    assert caplog.records == []
