"""Jobs that use a queue of Artemis or Qpid, as processes, with a real broker, Spark and Delta."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.optional import needs

needs("proton", "amqp1")

from tests import servers  # noqa: E402
from tests.e2e import readme  # noqa: E402
from tests.fakes.certificates import Authority  # noqa: E402
from tests.wire.links.amqp1.artemis import Artemis  # noqa: E402
from tests.wire.links.amqp1.peer import Peer  # noqa: E402
from tests.wire.links.amqp1.qpid import Qpid  # noqa: E402
from tests.wire.links.amqp1.servers import PASSWORD, QUEUES, Server  # noqa: E402


@pytest.fixture(scope="module", params=[Artemis, Qpid])
def amqp1_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A broker for the module; without Maven Central its tests are skipped, except in the gate."""
    folder = tmp_path_factory.mktemp(request.param.name)
    started: Server = request.param(folder / "node", Authority(folder / "ca"))
    try:
        started.__enter__()
    except RuntimeError as error:
        servers.absent(request.param.name, str(error).partition("\n")[0])
    yield started
    started.stop()


@pytest.fixture
def password(tmp_path: Path) -> Path:
    """The file with the password of the remote broker's user."""
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text(PASSWORD)
    return file


@pytest.mark.spark
@pytest.mark.delta
def test_flights_go_there_and_from_there_to_a_table(
    there_and_back: Callable[..., list[object]], amqp1_server: Server, password: Path
):
    """L9, L22, L23, K1, K3: the README's jobs move flights out and back, each once, none left."""
    peer = Peer(amqp1_server, QUEUES[0])
    there_and_back(
        readme.job_lines("--amqp-protocol", "amqp1"),
        {"amqp": peer.url, "amqp_queue": peer.queue},
        ["--amqp-temporary", "--amqp-password-file", password],
        ["--amqp-prefetch", "300"],
    )
    assert peer.browse() == []
