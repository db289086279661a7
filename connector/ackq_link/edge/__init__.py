"""The edge's side of a link: `AsyncLink` stores deliveries and reports what may be acknowledged."""

from ackq_link.edge.deliveries import Permits, Proof, StoredDeliveries
from ackq_link.edge.link import AsyncLink

__all__ = ["AsyncLink", "Permits", "Proof", "StoredDeliveries"]
