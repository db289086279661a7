"""A link's client of the edge: `AsyncLink` stores deliveries and returns acknowledge permits."""

from ackq_link.edge.deliveries import Permits, Proof, StoredDeliveries
from ackq_link.edge.link import AsyncLink

__all__ = ["AsyncLink", "Permits", "Proof", "StoredDeliveries"]
