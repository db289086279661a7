"""The tests that need more than Python and Java: a broker, its client, a browser or a cluster.

Invariant: `pytest` runs all other tests, `pytest --servers` runs only these. A test whose server is
missing is skipped with the remedy; where CI is `true` it fails.
"""

import os
from typing import NoReturn

import pytest

# A test that uses one of these fixtures needs a server, as does one with the mark `servers`, which
# tests of the library that has no wheels (`tests.optional.COMPILED`) have, too.
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

# Fixtures whose parameter names the server that they start, so that its fixture is unknown before.
PARAMETERS = (("bench", "rabbitmq"), ("peer", "artemis"), ("peer", "qpid"))


def needed_by(item: pytest.Item) -> bool:
    """Whether a collected test needs a server."""
    used = FIXTURES.intersection(getattr(item, "fixturenames", ()))
    call = getattr(item, "callspec", None)
    chosen = call is not None and any(call.params.get(name) == it for name, it in PARAMETERS)
    return bool(used or chosen or item.get_closest_marker("servers"))


def absent(program: str, remedy: str) -> NoReturn:
    """Skips the calling test, because a server's program is not on this machine.

    Args:
        program: The missing program, as the reason names it.
        remedy: The command that installs it.

    Raises:
        pytest.skip.Exception: Always; `pytest.fail.Exception` where CI is `true`.
    """
    reason = f"not installed: {program}; {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
