"""The reports of an outbound link to the edge, for operators (L26); nothing depends on them."""

from __future__ import annotations

import logging

import grpc

from ackq.client.connection import calls, errors
from ackq.client.connection.heartbeats import HeartbeatStream
from ackq.errors import AckqError, LimitError
from ackq.v1 import links_pb2 as pb

_log = logging.getLogger(__name__)


class OutboundReporter(HeartbeatStream[pb.ReportOutboundRequest, pb.ReportOutboundResponse]):
    """Reports the state of an outbound link to the edge every few seconds, until it is closed.

    It keeps retrying also when the edge already keeps its limit of reports.
    """

    name = "report"
    thread_name = "ackq-report"

    def _connect(
        self, channel: grpc.Channel, call_number: int
    ) -> calls.AnswerStream[pb.ReportOutboundResponse]:
        return calls.report_outbound(channel, self._requests(call_number))

    def _may_reconnect(self, error: AckqError) -> bool:
        return errors.is_transient(error) or isinstance(error, LimitError)

    def _on_end(self, error: AckqError | None) -> None:
        if error is not None and not self._abandoned:
            _log.warning(
                "The local broker does not show this outbound link to its operators: %s", error
            )
