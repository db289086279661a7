"""Shared parts of all suites: a real broker process per test, the option `--rule`, the order."""

import os
import signal
import subprocess

import hypothesis
import pytest

from tests import class_archive, prefork, rules, schedule, servers, sizes

# The duration of an example depends on the machine.
hypothesis.settings.register_profile("ackq", deadline=None)
hypothesis.settings.load_profile("ackq")

os.environ.setdefault("SPARK_SUBMIT_OPTS", class_archive.java_options())

RULES_WANTED = pytest.StashKey[list[str]]()
ARCHIVE = pytest.StashKey[subprocess.Popen[bytes] | None]()


def pytest_addoption(parser):
    """Adds `--rule`, which selects tests by the rules they cite, `--servers` and `--long`."""
    parser.addoption(
        "--rule",
        action="append",
        default=[],
        metavar="RULE",
        help="run the tests of a rule of proto/README.md, such as S5; repeatable, and takes lists"
        " and ranges: S5,K2 or S1-S4. A test's rules are those in its name and docstring; where"
        " these have none, those in its class's docstring, else in its module's.",
    )
    parser.addoption(
        "--servers",
        action="store_true",
        help="run the tests that need RabbitMQ, Artemis, Qpid, a browser or a Spark cluster, and no"
        " others; without it, all others",
    )
    parser.addoption(
        "--long",
        action="store_true",
        help="run long tests too, and those of any size at their full size",
    )


def pytest_configure(config):
    """Refuses a rule that does not exist, and chooses sizes, before anything is collected."""
    sizes.choose(long=config.getoption("long"))
    given = config.getoption("rule")
    try:
        config.stash[RULES_WANTED] = rules.wanted(given, rules.defined()) if given else []
    except ValueError as error:
        raise pytest.UsageError(f"--rule: {error}") from None


def pytest_sessionstart(session):
    """Makes the archive of Spark's classes beside a run on several workers, if there is none."""
    # A shell's background job ignores Ctrl-C, as would all programs that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if getattr(session.config.option, "numprocesses", None):
        session.config.stash[ARCHIVE] = class_archive.start_making()


def pytest_sessionfinish(session):
    """Ends the making of the archive with the run."""
    making = session.config.stash.get(ARCHIVE, None)
    if making is not None and making.poll() is None:
        os.killpg(making.pid, signal.SIGKILL)
    if making is not None:
        making.wait()


def pytest_report_header(config):
    """The header lines: the titles of the requested rules, and which tests are left out."""
    titles = rules.defined() if config.stash[RULES_WANTED] else {}
    named = [f"rule {rule}: {titles[rule]}" for rule in config.stash[RULES_WANTED]]
    if config.getoption("servers"):
        named.append("servers: the tests that need one, and no others")
    else:
        named.append("servers: the tests that need one are left out; --servers runs them")
    if not config.getoption("long"):
        named.append("long tests are left out, and others are short; --long runs all in full")
    return named


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Replaces `loadfile` by the scheduling of `tests.schedule`."""
    return schedule.Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config, items):
    """Deselects tests by `--servers`, `--long` and `--rule`; sorts the tests of a worker."""
    wanted, with_server = set(config.stash[RULES_WANTED]), config.getoption("servers")
    kept, left_out = [], []
    for item in items:
        asked_for = (
            servers.needed_by(item) == with_server
            and (sizes.are_long() or not sizes.is_long(item.nodeid))
            and (not wanted or wanted & rules_of(item))
        )
        (kept if asked_for else left_out).append(item)
    if hasattr(config, "workerinput"):
        key = schedule.order([item.nodeid for item in kept])
        kept.sort(key=lambda item: key(item.nodeid))
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def rules_of(item):
    """The rules that a collected test carries."""
    name = getattr(item, "originalname", None) or item.name
    places = (getattr(item, attribute, None) for attribute in ("obj", "cls", "module"))
    docstrings = (place.__doc__ for place in places if place is not None)
    return rules.carried(name, *docstrings, rules=rules.defined())


@pytest.fixture(scope="session", autouse=True)
def preforked():
    """Embedded brokers and Spark's workers start as forks, in a tenth of the time."""
    prefork.listen_for_python()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ackq_broker.embedding.start_child", prefork.start_embedded)
        yield


@pytest.fixture
def broker(tmp_path):
    """A real broker process with its own data directory.

    `broker.kill()` is SIGKILL, `broker.restart()` starts it again.
    """
    from ackq_broker import embedded

    with embedded(data=tmp_path / "data") as running:
        yield running


@pytest.fixture
def admin(broker):
    """An `Admin` on the test's broker."""
    from ackq.client import Admin

    with Admin(broker.endpoint) as client:
        yield client
