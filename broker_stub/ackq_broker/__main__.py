"""`python -m ackq_broker` is the command `ackq-broker`."""

from __future__ import annotations

from ackq_broker.cli import main

if __name__ == "__main__":
    main()
