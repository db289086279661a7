"""The client's token on each of its calls."""

import logging

import grpc
import pytest

from ackq.client import Broker, Security, grpc_channel
from ackq.client.connection.authorization import TokenFile
from ackq.client.connection.grpc_channels import replace_channel
from ackq.errors import InvalidArgumentError

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Told(grpc.GenericRpcHandler):
    """Answers each kind of call, and notes its `authorization`."""

    def __init__(self):
        self.sent = []

    def service(self, details):
        self.sent.append(dict(details.invocation_metadata).get("authorization"))
        kind = details.method.rpartition("/")[2]
        answer = iter([b""]) if kind.endswith("stream") else b""
        return getattr(grpc, f"{kind}_rpc_method_handler")(lambda _requests, _context: answer)


@pytest.fixture
def told(serve):
    """A server that answers each kind of call: its endpoint and the `authorization` values."""
    handler = Told()
    return f"127.0.0.1:{serve(handler)}", handler.sent


def call(channel, kind):
    """Calls the method of the given kind, and waits for its end."""
    given = iter([b""]) if kind.startswith("stream") else b""
    answer = getattr(channel, kind)(f"/t/{kind}")(given)
    if kind.endswith("stream"):
        list(answer)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rotated_file_is_used_by_the_next_call(told, kind, tmp_path):
    """A9: each kind of call has the token, and the next call a new one on the same channel."""
    endpoint, sent = told
    file = tmp_path / "token"
    file.write_text("one\n")
    channel = grpc_channel(endpoint, Security(token_file=str(file)))
    call(channel, kind)
    rotated = tmp_path / "new"
    rotated.write_text("two")
    rotated.rename(file)
    assert grpc_channel(endpoint, Security(token_file=str(file))) is channel
    call(channel, kind)
    call(grpc_channel(endpoint, Security(token="three")), kind)
    call(grpc_channel(endpoint), kind)
    assert sent == ["Bearer one", "Bearer two", "Bearer three", None]


NO_TOKENS = ("s3cr3t two", "s3cr3t\ntwo\n", "t\u00f6ken")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file"),
        *((text, "is empty") for text in ("", " \n")),
        *((text, "does not hold exactly one token") for text in NO_TOKENS),
        ("x" * 5000, "holds more than 4096 bytes"),
    ],
)
def test_a_file_without_a_token_is_refused_at_once(content, problem, tmp_path):
    """The error comes before any call, with the file's name and not its content."""
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidArgumentError, match=problem) as refused:
        grpc_channel("127.0.0.1:1", Security(token_file=str(file)))
    assert str(file) in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_a_file_in_mid_rotation_leaves_the_last_token(tmp_path, caplog):
    """An empty or missing token file, as during a rewrite, leaves the last token in use.

    One that every user can read is named, without its content.
    """
    file = tmp_path / "token"
    file.write_text("one")
    file.chmod(0o644)
    token = TokenFile(str(file))
    assert token.read() == "one"
    file.write_text("")
    with caplog.at_level(logging.WARNING):
        assert token.read() == "one"
    file.unlink()
    assert token.read() == "one"
    file.write_text("two")
    assert token.read() == "two"
    assert "is empty; its previous token stays in use" in caplog.text
    assert "'one'" not in caplog.text
    assert caplog.text.count(f"chmod 600 {file}") == 1


def test_a_new_channel_has_the_last_token(told, tmp_path):
    """A9: a stream that changes connection while the token file is empty goes on."""
    endpoint, sent = told
    file = tmp_path / "token"
    file.write_text("one")
    broker = Broker(endpoint, Security(token_file=str(file)))
    channel = grpc_channel(broker)
    replace_channel(broker, channel)
    file.write_text("")
    assert grpc_channel(broker) is not channel
    call(grpc_channel(broker), "unary_unary")
    assert sent == ["Bearer one"]
