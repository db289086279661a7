"""The names of `ackq.client`: imported lazily, with the older names kept."""

from ackq import client
from tests.unit.client.threads import run_program


def test_importing_security_needs_no_grpc():
    """Importing `Security` loads neither gRPC nor pyarrow, as Spark's options need neither."""
    run_program("""
        import sys
        from ackq.client import Security
        raise SystemExit("grpc" in sys.modules or "pyarrow" in sys.modules)
    """)


def test_every_public_name_exists():
    """Each name in the lazy table exists in its module."""
    assert [name for name in client.__all__ if not hasattr(client, name)] == []
