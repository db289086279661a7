"""The names of `ackq.client`: imported lazily, with the older names kept."""

import subprocess
import sys

from ackq import client


def test_importing_security_needs_no_grpc():
    """Importing `Security` loads neither gRPC nor pyarrow, as Spark's options need neither."""
    program = (
        "import sys; from ackq.client import Security;"
        "raise SystemExit('grpc' in sys.modules or 'pyarrow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_public_name_exists():
    """Each name in the lazy table exists in its module."""
    import ackq.client

    assert [name for name in ackq.client.__all__ if not hasattr(ackq.client, name)] == []


def test_public_names_are_listed():
    """`dir()` lists public names before they are imported, for completion in notebooks."""
    assert {"Publisher", "Admin", "AsyncChannel", "ModeName", "OutcomeName"} <= set(dir(client))
