"""The names of `ackq.client`: imported on first use, old ones still there."""

import subprocess
import sys

from ackq import client


def test_importing_security_needs_no_grpc():
    """Spark imports options in processes that never talk to a broker."""
    program = (
        "import sys; from ackq.client import Security;"
        "raise SystemExit('grpc' in sys.modules or 'pyarrow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_public_name_exists():
    """The lazy table and the modules agree."""
    import ackq.client

    assert [name for name in ackq.client.__all__ if not hasattr(ackq.client, name)] == []


def test_public_names_are_listed():
    """A notebook completes them before they are imported."""
    assert {"Publisher", "Admin", "AsyncChannel", "ModeName", "OutcomeName"} <= set(dir(client))
