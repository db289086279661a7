"""Runs the command `ackq-broker` as `python -m ackq_broker`."""

from __future__ import annotations

from ackq_broker.cli import main

if __name__ == "__main__":
    main()
