"""A9: no secret in Spark's output on a query: plans, UI, event log, checkpoints, logs, errors."""

import base64
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.fakes.secured import secured_broker
from tests.prefork import PYTHON
from tests.spark import cluster

# Recognisable, whole and in its parts, and in every encoding that a writer may use.
SECRET = "ackq_Zq7-tell-no-one_Xk9"
FORMS = (
    SECRET.encode(),
    b"tell-no-one",
    quote(SECRET, safe="").encode(),
    SECRET.encode("utf-16-le"),
    SECRET.encode().hex().encode(),
    *(base64.b64encode(b"x" * shift + SECRET.encode())[4:-4] for shift in range(3)),
)
TELLING = Path(__file__).with_name("telling.py")

pytestmark = pytest.mark.timeout(cluster.TEST_S)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The folder of a program that has run queries with a token, and its log."""
    from ackq.client import Admin, Publisher

    folder = tmp_path_factory.mktemp("told")
    (folder / "events").mkdir()
    with secured_broker(tmp_path_factory.mktemp("broker"), mutual=True, token=SECRET) as secured:
        me = secured.authority.issue("me")
        security = replace(secured.security(), cert=me.cert, key=me.key)
        with Admin(secured.endpoint, security=security) as admin:
            admin.declare_queue("dead")
            admin.declare_queue("in", dead_letter_queue="dead")
            admin.declare_queue("out")
        with Publisher(secured.endpoint, security=security, routing_key="in") as publisher:
            for number in range(10):
                publisher.publish(b"%d" % number)
        files = (security.ca, security.token_file, me.cert, me.key)
        (folder / "key").write_text(Path(me.key).read_text())
        with (folder / "log").open("wb") as log:
            subprocess.run(
                [sys.executable, str(TELLING), secured.endpoint, str(folder), *files],
                env=cluster.environment(
                    PYTHONPATH=":".join(filter(None, sys.path)), ACKQ_WORKER_PYTHON=PYTHON
                ),
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=cluster.RUN_S,
            )
    return folder


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "key"
    }


def test_the_program_told_much(told):
    """The program wrote enough output, without which a search that finds nothing proves nothing."""
    found = files(told)
    (events,) = [name for name in found if "/events_1_" in name]
    log = found["log"].decode(errors="replace")
    assert "told/ui/page-sql" in found, log[-5000:]
    names = "\n".join(found)
    for place in ("checkpoints/exactly-once/offsets/1", "checkpoints/each/commits/0"):
        assert place in names
    # Spark shows the options of a view, and hides those with "token" in their name.
    assert b"token -> *********(redacted)" in found["told/ui/sql"]
    assert b"token -> *********(redacted)" in found[events]
    assert "There is no queue 'gone'" in found["told/errors/missing"].decode()
    for error in ("unknown", "both", "bad", "wrong", "nowhere", "settle"):
        assert len(found[f"told/errors/{error}"]) > len("None"), error


@pytest.mark.parametrize("form", FORMS, ids=range(len(FORMS)))
def test_nothing_that_spark_tells_has_the_token(told, form):
    """No token in plans, UI, event log, checkpoints, pickled partitions, progress, errors, logs."""
    assert [name for name, content in files(told).items() if form in content] == []


def test_nothing_that_spark_tells_has_the_key(told):
    """No line of the key whose certificate is an option is in Spark's output."""
    lines = [line for line in (told / "key").read_bytes().splitlines() if b"-----" not in line]
    assert len(lines) > 2
    found = {
        name for name, content in files(told).items() if any(line in content for line in lines)
    }
    assert found == set()
