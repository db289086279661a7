"""Which tests need a server beside Python and Java: another broker, a browser, a Spark cluster.

Invariant: `pytest` runs every other test, `pytest --servers` runs these and no other. One that
misses its server is skipped with the remedy; where CI is `true` it fails.
"""

import os
from typing import NoReturn

import pytest

# A test that uses one of these fixtures needs a server, as does one with the mark `servers`.
FIXTURES = frozenset(
    (
        "amqp1_server",
        "artemis_queues",
        "browser",
        "node",
        "qpid_queues",
        "rabbitmq",
        "rabbitmq_dialect",
    )
)

# Fixtures whose parameter says which server they start, so that its fixture is not known before.
PARAMETERS = (("bench", "rabbitmq"), ("peer", "artemis"), ("peer", "qpid"))


def needed_by(item: pytest.Item) -> bool:
    """Whether a collected test needs a server."""
    used = FIXTURES.intersection(getattr(item, "fixturenames", ()))
    call = getattr(item, "callspec", None)
    chosen = call is not None and any(call.params.get(name) == it for name, it in PARAMETERS)
    return bool(used or chosen or item.get_closest_marker("servers"))


def absent(program: str, remedy: str) -> NoReturn:
    """Skips the test that asks, because a server's program is not on this machine.

    Args:
        program: What is missing, as the reason names it.
        remedy: The command that installs it.

    Raises:
        pytest.skip.Exception: Always; `pytest.fail.Exception` where CI is `true`.
    """
    reason = f"not installed: {program}; {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
