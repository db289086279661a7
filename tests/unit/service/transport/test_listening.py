"""O2: listen addresses, and why one cannot be used."""

import socket
import stat
from unittest.mock import Mock

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.service.transport import listening
from ackq_broker.service.transport.listening import Address, address, bind, check_apart, check_free
from tests.libraries import replace


def test_an_address_that_is_none():
    """O2: an address that is neither a port nor a path is refused."""
    for text in (
        *("", "7411", "host:", ":1", "host:99999", "::1:7411", "[::1:7411"),
        *("unix:", "unix:/" + "x" * 107),
    ):
        with pytest.raises(InvalidArgumentError, match="is not "):
            address(text)


def refusal(listen):
    """The reason for which a listen address is refused."""
    with pytest.raises(InvalidArgumentError) as error:
        check_free(listen)
    told = str(error.value)
    assert told.startswith(f"The broker cannot listen on {listen}: ")
    assert "Errno" not in told
    return told.partition(f"{listen}: ")[2]


def test_a_port_that_cannot_be_had(monkeypatch):
    """O2: of another machine, an unknown host, or one that needs a capability, in plain words."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert refusal(Address("127.0.0.1", taken.getsockname()[1])) == (
            "another process listens on this address, and must end first. Choose another --listen."
        )
    assert "this machine does not have that address" in refusal(Address("192.0.2.1", 0))
    assert refusal(Address("nowhere.invalid", 1)).startswith("no host has the name nowhere.invalid")

    class Denied(socket.socket):
        bind = Mock(side_effect=PermissionError(13, "Permission denied"))

    replace(monkeypatch, listening, socket, socket=Denied)
    assert "ports below 1024 are for the system's administrator" in refusal(Address("127.0.0.1", 1))


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("127.0.0.1:15775", "127.0.0.1:15775", False),
        ("127.0.0.1:15775", "0.0.0.0:15775", False),
        ("127.0.0.1:15775", "localhost:15775", False),
        ("[::]:15775", "127.0.0.1:15775", False),
        ("0.0.0.0:15775", "[::1]:15775", False),
        ("unix:/tmp/s", "unix:/tmp/s", False),
        ("[::1]:15775", "0.0.0.0:15775", True),
        ("127.0.0.1:15775", "127.0.0.2:15775", True),
        ("127.0.0.1:15775", "127.0.0.1:15776", True),
        ("127.0.0.1:0", "127.0.0.1:0", True),
        ("unix:/tmp/s", "unix:/tmp/t", True),
        ("nowhere.invalid:1", "[::]:1", True),
    ],
)
def test_addresses_that_overlap(one, other, apart):
    """O2, O4: of two addresses with the same port the later one is refused, by its option."""
    first, second = map(address, (one, other))
    for listen, http, option in (([first, second], None, "listen"), ([first], second, "http")):
        if apart:
            check_apart(listen, http)
        else:
            with pytest.raises(InvalidArgumentError, match=f"Choose another --{option}"):
                check_apart(listen, http)


def test_a_port_that_was_taken_during_the_start():
    """O4: an address that gRPC cannot bind in the end is refused as it is before."""
    add_port = Mock(side_effect=RuntimeError("Failed to bind to address"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(InvalidArgumentError, match="another process listens"):
            bind(listen, add_port)
    with pytest.raises(InvalidArgumentError, match=r"listen on 127.0.0.1:0: Failed to bind"):
        bind(Address("127.0.0.1", 0), add_port)


def test_a_socket_for_its_owner_alone(tmp_path):
    """O2: a socket and its new folder are private to the owner from their first moment."""
    listen = Address(path=tmp_path / "run" / "broker.sock")
    check_free(listen)

    def add_port(text):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(text.removeprefix("unix:"))
        return 1

    assert bind(listen, add_port) == listen
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (listen.path, listen.path.parent)]
    assert modes == [0o600, 0o700]


def test_a_file_is_never_removed_for_a_socket(tmp_path):
    """O2: a file with the socket's name that is not a socket is never removed."""
    path = tmp_path / "s"
    path.write_text("mine")
    assert "a file of that name exists and is not a socket" in refusal(Address(path=path))
    assert path.read_text() == "mine"
    assert "a part of the path is not a directory" in refusal(Address(path=path / "t"))
