"""A headless Chromium on the dashboard of a broker process."""

from pathlib import Path

import pytest

import ackq_broker
from tests import servers
from tests.wire.dashboard.contents import filled
from tests.wire.dashboard.page import Page, chromium

_PROGRAMS = (Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A browser; without one the tests are skipped, except in the gate, which installs it."""
    missing = [str(program) for program in _PROGRAMS if not program.exists()]
    if missing:
        servers.absent(", ".join(missing), "apt-get install chromium-driver")
    driver = chromium(*_PROGRAMS, tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A broker process that serves HTTP."""
    with ackq_broker.embedded(tmp_path_factory.mktemp("broker") / "data", http=True) as running:
        yield running


@pytest.fixture(scope="module")
def contents(served):
    """The raw client of that broker, filled with contents."""
    with filled(served.endpoint) as client:
        yield client


@pytest.fixture
def page(browser, served, contents):
    """The dashboard of a broker with contents."""
    assert contents
    opened = Page(browser, served.http_endpoint)
    yield opened
    opened.check_console()
