"""HTTP of a broker with users and TLS: same certificate, users and rules as gRPC."""

import datetime as dt
import http.client
import ssl

import pytest

import ackq_broker
from ackq import errors
from tests.eventually import SOON_S, equals, eventually
from tests.wire.access.conftest import add_master, add_user
from tests.wire.access.test_tls import Files


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A broker with users, TLS and HTTPS: the process, its files, and tokens by name."""
    folder = tmp_path_factory.mktemp("https")
    files, users = Files(folder), folder / "users.toml"
    tokens = {
        "master": add_master(users),
        "observer": add_user(users, "observer", role="observer"),
        "reader": add_user(users, "reader", read=".*"),
        "wrong": "no token of this broker",
    }
    env = files.environment(ACKQ_BROKER_USERS=str(users))
    with ackq_broker.embedded(folder / "data", sync=False, env=env, http=True) as broker:
        yield broker, files, tokens


def ask(guarded, path, token=None):
    """Status, headers and text of an HTTP answer."""
    broker, files, tokens = guarded
    context = ssl.create_default_context(cadata=files.ca.decode())
    connection = http.client.HTTPSConnection(broker.http_endpoint, timeout=SOON_S, context=context)
    try:
        headers = {"Authorization": f"Bearer {tokens[token]}"} if token else {}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(("path", "text"), [("/livez", "live\n"), ("/readyz", "ready\n")])
def test_probes_need_no_token(guarded, path, text):
    """M1: health probes need no token, and say nothing else."""
    status, _, found = ask(guarded, path)
    assert (status, found) == (200, text)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/queues"])
@pytest.mark.parametrize(
    ("token", "status"),
    [(None, 401), ("wrong", 401), ("reader", 403), ("observer", 200), ("master", 200)],
)
def test_metrics_need_an_observer(guarded, path, token, status):
    """M2, A1, A2, A8: metrics need the role observer, as they name all queues; refusals are logged.

    The log has no token.
    """
    found, headers, text = ask(guarded, path, token)
    assert found == status
    assert headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)
    assert ("ackq_queue_messages" in text) == (status == 200)
    if status == 403:
        assert errors.PermissionDeniedError.code in text
        assert "observer" in text
        assert '"reason": "the role observer"' in guarded[0].log_file.read_text()
    assert not any(each in guarded[0].log_file.read_text() for each in guarded[2].values())


def test_the_end_of_the_certificate_is_a_metric_and_a_new_one_is_served(guarded):
    """M2, A6: the expiry metric follows the certificate file, and new connections use the file."""
    _, files, _ = guarded

    def ends():
        _, _, text = ask(guarded, "/metrics", "observer")
        name = "ackq_certificate_expiration_timestamp_seconds"
        (line,) = (each for each in text.splitlines() if each.startswith(f"{name} "))
        return float(line.split()[1])

    def served():
        host, port = guarded[0].http_endpoint.split(":")
        return ssl.get_server_certificate((host, int(port)))

    first, before = ends(), served()
    later = dt.datetime.fromtimestamp(first, dt.UTC) - dt.timedelta(days=1)
    made = files.issue(not_after=later)
    eventually("its end", ends, equals(later.replace(microsecond=0).timestamp()))
    assert served() == made != before
