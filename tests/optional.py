"""Libraries that only some users have: without one its tests are skipped, but not in the gate."""

import importlib.util
import os

import pytest


def needs(module, extra):
    """Skips the test module that calls it, where a library is missing."""
    if importlib.util.find_spec(module) is None and os.environ.get("CI") != "true":
        pytest.skip(f"not installed: pip install 'ackq[{extra}]'", allow_module_level=True)
