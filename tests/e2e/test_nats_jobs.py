"""Jobs that use a stream of NATS, as processes, with a real server, Spark and Delta."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.optional import needs

needs("nats", "nats")

from kit import JobError, other_queues  # noqa: E402
from tests.e2e import readme  # noqa: E402
from tests.fakes.certificates import Authority  # noqa: E402
from tests.wire.links.jetstream.nats_server import NatsServer  # noqa: E402


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server for the module."""
    folder = tmp_path_factory.mktemp("nats")
    server = NatsServer(folder / "node", Authority(folder / "ca"))
    server.start()
    try:
        yield server.ready()
    finally:
        server.kill()


def test_a_stream_that_is_not_there_is_told(nats_server: NatsServer):
    """L17: a missing stream is reported in the words of a link, and made if that is asked for."""
    for name in ("none", "none/one"):
        with pytest.raises(JobError, match=f"there is no '{name}'"):
            asyncio.run(other_queues.other_queue("nats", nats_server.url, name).depth())
    for name in ("made", "made/one", "made/one"):
        queue = other_queues.other_queue("nats", nats_server.url, name, declare=True)
        assert asyncio.run(queue.depth()).messages == 0


@pytest.mark.spark
@pytest.mark.delta
def test_flights_go_to_a_stream_and_from_there_to_a_table(
    there_and_back: Callable[..., list[object]], nats_server: NatsServer
):
    """L30, L22, L23, K1, K3: the guide's jobs move flights out and back, each once, none left."""
    there_and_back(
        readme.job_lines("--nats"),
        {"nats": nats_server.url},
        ["--nats-temporary"],
        ["--nats-prefetch", "225"],
    )
    assert nats_server.ask("STREAM.INFO.flights")["state"]["messages"] == 0
