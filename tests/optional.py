"""Optional libraries: tests that need a missing one are skipped, except in the gate."""

import importlib.util
import os

import pytest


def needs(module, extra):
    """Skips the calling test module if a library is missing."""
    if importlib.util.find_spec(module) is None and os.environ.get("CI") != "true":
        pytest.skip(f"not installed: pip install 'ackq[{extra}]'", allow_module_level=True)
