"""A client's TLS and token settings: contradictions are refused, and no secret is shown."""

import pickle

import pytest

from ackq.client import Security
from ackq.client.connection.security import proxy_variable
from ackq.errors import InvalidArgumentError

SECRET = "s3cr3t-t0ken"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"ca": "ca.pem"}, "TLS is off"),
        ({"tls": True, "cert": "c.pem"}, "both the client's certificate and its key"),
        ({"tls": True, "key_pem": SECRET}, "both the client's certificate and its key"),
        ({"tls": True, "ca": "c.pem", "ca_pem": SECRET}, "ca and ca_pem were both given"),
        ({"token": SECRET, "token_file": "token"}, "a token file were given; give one"),
        ({"token": f"{SECRET} x"}, "a character that a token cannot have"),
        ({"token": f"{SECRET}\n"}, "a character that a token cannot have"),
    ],
)
def test_what_contradicts_itself_is_refused(given, problem):
    """Contradictory settings are refused, and no message shows a token."""
    with pytest.raises(InvalidArgumentError, match=problem) as refused:
        Security(**given)
    assert SECRET not in str(refused.value)


def test_no_repr_shows_a_token():
    """The repr and str of `Security` show no token and no private key."""
    security = Security(token=SECRET)
    assert SECRET not in f"{security!r} {security} {[security]}"
    keyed = Security(tls=True, cert="c.pem", key_pem=SECRET)
    assert SECRET not in repr(keyed)
    assert pickle.loads(pickle.dumps(security)) == security  # noqa: S301


LOCAL = ("127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "unix:/run/ackq")


@pytest.mark.parametrize("endpoint", [*LOCAL, "dns:///localhost:1"])
def test_a_token_may_stay_on_this_machine(endpoint):
    Security(token=SECRET).check_endpoint(endpoint)


@pytest.mark.parametrize(
    "endpoint", ["10.0.0.1:1", "broker:1", "[fe80::1]:1", "localhost.example:1", "0.0.0.0:1"]
)
def test_a_token_leaves_this_machine_encrypted_only(endpoint):
    """A9: a token goes to another machine with TLS only, or with `insecure`."""
    for given in ({"token": SECRET}, {"token_file": "token"}):
        with pytest.raises(InvalidArgumentError, match=r"in plain text.*tlsCa.*--ca") as refused:
            Security(**given).check_endpoint(endpoint)
        assert SECRET not in str(refused.value)
        Security(**given, tls=True).check_endpoint(endpoint)
        Security(**given, insecure=True).check_endpoint(endpoint)
    Security().check_endpoint(endpoint)


@pytest.mark.parametrize(
    ("endpoint", "tls", "environment", "variable"),
    [
        ("127.0.0.1:1", True, {"https_proxy": "x"}, ""),
        ("unix:/x", False, {"http_proxy": "x"}, ""),
        ("broker:1", False, {"http_proxy": "x", "https_proxy": "x", "grpc_proxy": "x"}, ""),
        ("broker:1", True, {"http_proxy": "x"}, "http_proxy"),
        ("broker:1", True, {"http_proxy": "x", "https_proxy": "x"}, "https_proxy"),
        ("broker:1", True, {"https_proxy": "x", "grpc_proxy": "x"}, "grpc_proxy"),
        ("broker.corp:1", True, {"https_proxy": "x", "no_proxy": "other, .corp"}, ""),
        ("broker:1", True, {"https_proxy": "x", "no_grpc_proxy": "broker"}, ""),
        ("broker:1", True, {}, ""),
    ],
)
def test_which_proxy_calls_go_through(endpoint, tls, environment, variable):
    """A9: calls in plain text or to this machine go through no proxy."""
    assert proxy_variable(endpoint, tls=tls, environment=environment) == variable


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Security(token="t")),
        ({"token_file": "f"}, Security(token_file="f")),
        ({"tls": False, "server_name": "n"}, Security(tls=True, server_name="n", token="t")),
    ],
)
def test_what_a_process_was_given(given, expected, monkeypatch):
    """A9: a server name turns TLS on; `ACKQ_TOKEN` counts when there is no token file."""
    monkeypatch.setenv("ACKQ_TOKEN", "t")
    assert Security.of_settings(given) == expected
