"""A pytest plugin: which functions of the product each test module calls, and how long it takes.

Functions that the module's import and fixtures of a wider scope call count for the module whose
test needed them first. `ACKQ_REACHED` names the file for the answer, as JSON:
{test module: [seconds, [[source file, first line of a function], ...]]}.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

PACKAGES = ("ackq_broker", "ackq", "ackq_link")


class Reached:
    """Notes calls while a test runs, in every thread of this process."""

    def __init__(self):
        self.codes = {}
        self.seconds = {}
        self.now = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        module = item.nodeid.partition("::")[0]
        self.now = self.codes.setdefault(module, set())
        began = time.perf_counter()
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            took = time.perf_counter() - began
            self.seconds[module] = self.seconds.get(module, 0) + took

    def _note(self, frame, event, _argument):
        if event == "call":
            self.now.add(frame.f_code)

    def pytest_sessionfinish(self):
        """Writes what was called of the product."""
        found = {
            module: [
                self.seconds[module],
                sorted({(c.co_filename, c.co_firstlineno) for c in codes if _is_ours(c)}),
            ]
            for module, codes in self.codes.items()
        }
        Path(os.environ["ACKQ_REACHED"]).write_text(json.dumps(found))


def _is_ours(code):
    return any(f"/{package}/" in code.co_filename for package in PACKAGES)


def pytest_configure(config):
    """Registers the plugin."""
    config.pluginmanager.register(Reached())
