"""Security options, validated before the first client connects."""

from pathlib import Path

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.security.setup import SecurityOptions

FILE = Path("file")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "[::1]", ""])
def test_this_machine_alone_needs_nothing(host):
    """A6: loopback addresses and Unix sockets need neither TLS nor users."""
    SecurityOptions().check_host(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.1", "broker.example", "[fe80::1]"])  # noqa: S104
def test_other_addresses_need_both(host):
    """A6: other addresses need TLS and users, or `--insecure`."""
    for options in (
        SecurityOptions(),
        SecurityOptions(users=FILE),
        SecurityOptions(tls_cert=FILE, tls_key=FILE),
    ):
        with pytest.raises(InvalidArgumentError, match="does not listen on"):
            options.check_host(host)
    SecurityOptions(users=FILE, tls_cert=FILE, tls_key=FILE).check_host(host)
    SecurityOptions(insecure=True).check_host(host)


def test_half_of_tls():
    """A6: a certificate without key, a key alone, or client authorities alone are refused."""
    for options in (
        SecurityOptions(tls_cert=FILE),
        SecurityOptions(tls_key=FILE),
        SecurityOptions(tls_client_ca=FILE),
    ):
        with pytest.raises(InvalidArgumentError, match="needs a certificate and its key"):
            options.credentials()
    assert SecurityOptions().credentials() is None
    assert SecurityOptions().users_file() is None
