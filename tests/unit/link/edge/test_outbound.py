"""Reports of an outbound link: when they reconnect, and when they end."""

import logging

from ackq.client import Broker
from ackq.errors import BrokerUnavailableError, LimitError, PermissionDeniedError, UnsupportedError
from ackq.v1 import links_pb2 as pb
from ackq_link.edge.outbound import OutboundReporter


def test_what_ends_the_reports(caplog):
    """L26: an older broker or a missing permission ends them; the log says so once.

    A reporter that is closed with its process logs nothing.
    """
    caplog.set_level(logging.WARNING)
    with OutboundReporter(Broker("localhost:1"), pb.ReportOutboundRequest) as reporter:
        for passing in (BrokerUnavailableError, LimitError):
            assert reporter._may_reconnect(passing("words"))
        for lasting in (UnsupportedError, PermissionDeniedError):
            assert not reporter._may_reconnect(lasting("words"))
        reporter._on_end(UnsupportedError("words"))
    (record,) = caplog.records
    told = "The local broker does not show this outbound link to its operators: words"
    assert told in record.getMessage()
