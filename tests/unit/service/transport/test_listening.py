"""O2: listen addresses, and why one cannot be used."""

import socket
import stat

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.service.transport.listening import Address, address, bind, check_free


@pytest.mark.parametrize(
    "text", ["", "7411", "host:", ":1", "host:99999", "host:-1", "unix:", "unix:/" + "x" * 107]
)
def test_an_address_that_is_none(text):
    """O2: an address that is neither a port nor a path is refused."""
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


def test_a_port_that_cannot_be_had():
    """O2: a port in use, of another machine, or of an unknown host is refused in plain words."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refusal(Address("127.0.0.1", port)) == (
            "another process listens on this address, and must end first. Choose another --listen."
        )
    assert "this machine does not have that address" in refusal(Address("192.0.2.1", 0))
    assert refusal(Address("nowhere.invalid", 1)).startswith("no host has the name nowhere.invalid")


def test_a_port_of_the_system(monkeypatch):
    """O2: a port below 1024 that needs a capability is refused, naming the reason."""

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", denied)
    assert "ports below 1024 are for the system's administrator" in refusal(Address("127.0.0.1", 1))


def test_a_socket_for_its_owner_alone(tmp_path):
    """O2: a socket and its new folder are private to the owner from their first moment."""
    listen = Address(path=tmp_path / "run" / "broker.sock")
    check_free(listen)
    made = []

    def add_port(text):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(text.removeprefix("unix:"))
        made.append(text)
        return 1

    assert bind(listen, add_port) == listen
    assert made == [str(listen)]
    assert stat.S_IMODE(listen.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(listen.path.parent.stat().st_mode) == 0o700


def test_a_file_is_never_removed_for_a_socket(tmp_path):
    """O2: a file with the socket's name that is not a socket is never removed."""
    path = tmp_path / "s"
    path.write_text("mine")
    assert "a file of that name exists and is not a socket" in refusal(Address(path=path))
    assert path.read_text() == "mine"
    assert "a part of the path is not a directory" in refusal(Address(path=path / "t"))
