"""What the broker keeps of a report."""

from ackq.v1 import links_pb2 as pb
from ackq_broker.service.links.info import of_its_own


def test_a_report_is_kept_without_its_request():
    """I6: one that came with 2 MB that were cut, or unknown, kept them for as long as itself."""
    known = pb.LinkReport(window_messages=5, limited_by="edge")
    sent = pb.LinkReport.FromString(known.SerializeToString() + b"\xfa\x01\x02xy")
    kept = of_its_own(sent)
    assert kept is not sent
    assert kept.SerializeToString() == known.SerializeToString()
