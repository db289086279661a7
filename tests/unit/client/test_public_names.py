"""The names of `ackq.client`: imported on first use, old ones still there."""

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize(("old", "new"), [("channel", "grpc_channel"), ("Hold", "LivenessStream")])
def test_old_names_work_and_say_the_new_one(old, new):
    """Programs that were written before the renaming go on."""
    import ackq.client

    with pytest.warns(DeprecationWarning, match=f"'{new}'"):
        assert getattr(ackq.client, old) is getattr(ackq.client, new)


def test_public_names_are_listed():
    """A notebook completes them before they are imported."""
    assert {"Publisher", "Admin", "AsyncChannel", "ModeName", "OutcomeName"} <= set(dir(client))
