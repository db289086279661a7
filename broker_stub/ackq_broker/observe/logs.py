"""Logging set-up: one line per event on stderr, tracebacks after their line."""

from __future__ import annotations

import logging
import sys
import time


class _Utc(logging.Formatter):
    """Times in UTC with milliseconds, as in `2013-01-01T00:00:00.000Z`."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


def configure(level: int = logging.INFO) -> None:
    """Send the broker's log to stderr; replaces what was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Utc("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
