"""The broker's copy of a link report."""

from ackq.v1 import links_pb2 as pb
from ackq_broker.service.links.info import of_its_own


def test_a_report_is_kept_without_its_request():
    """I6: a kept report does not hold its request, whose cut or unknown fields may be 2 MB."""
    known = pb.LinkReport(window_messages=5, limited_by="edge")
    sent = pb.LinkReport.FromString(known.SerializeToString() + b"\xfa\x01\x02xy")
    kept = of_its_own(sent)
    assert kept is not sent
    assert kept.SerializeToString() == known.SerializeToString()
