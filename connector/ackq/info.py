"""Result classes of `ackq.client.Admin`: frozen, with the field names of dashboard and JSON.

Each is made from a message of the protocol, whose comments are its documentation. A field that the
broker does not report has its default, so that a test of your own code can make such an object from
only the fields that it needs.
"""

from __future__ import annotations

from typing import Literal

from ackq.v1 import info
from ackq.v1.info import *  # noqa: F403 - all that are generated

DeathCause = Literal["rejected", "expired", "delivery_limit"]

__all__ = ["DeathCause", *info.__all__]  # noqa: PLE0604 - texts
