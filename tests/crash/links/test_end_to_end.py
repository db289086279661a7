"""A short chain from RabbitMQ to Artemis; and a ledger that finds each kind of violation."""

import time

import pytest

from tests.optional import needs

needs("proton", "amqp1")

from tests import servers  # noqa: E402
from tests.crash.links.chain import Chain, compared  # noqa: E402
from tests.crash.links.fault_run import burnt  # noqa: E402
from tests.sizes import sized  # noqa: E402
from tests.wire.brokers import rabbitmq_server  # noqa: E402
from tests.wire.links.amqp1.artemis import Artemis  # noqa: E402


@pytest.mark.crash
@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_each_message_arrives_once(tmp_path):
    """L5, L6, L9, L22, L23, L24, K1, K3: each message is in Artemis once."""
    if missing := rabbitmq_server.missing():
        servers.absent(missing, rabbitmq_server.REMEDY)
    try:
        Artemis(tmp_path / "jars", None).jars()
    except RuntimeError as error:
        servers.absent("Artemis", str(error).partition("\n")[0])
    seed = time.time_ns() % 1_000_000
    print("seed", seed)
    wrong, found, chain = burnt(Chain(seed, tmp_path / "run"), sized(20, 60))
    assert wrong == [], f"seed {seed}: {dict(chain.figures)}"
    assert found.confirmed > 0
    assert any(n for name, n in chain.figures.items() if name.startswith("kill"))


@pytest.mark.parametrize(
    ("rows", "lost", "doubled", "strange"),
    [
        ("0=0 1=1 2=2", 0, 0, 0),
        ("2=2 0=0 1=1 3=3", 0, 0, 0),  # 3 was sent, and not confirmed
        ("0=0 2=2", 1, 0, 0),
        ("0=0 1=1 1=1 2=2", 0, 1, 0),
        ("0=0 1=1 2=2 4=4", 0, 0, 1),
        ("0=1 1=1 2=2", 0, 0, 1),  # another body
    ],
)
def test_what_is_wrong(rows, lost, doubled, strange):
    """L22: each confirmed message arrives once as it was, and no other except that in flight."""
    pairs = [row.split("=") for row in rows.split()]
    found = compared([(name, body.encode()) for name, body in pairs], {0, 1, 2})
    assert (found.lost, found.doubled, found.strange) == (lost, doubled, strange)
    assert found.wrong == any((lost, doubled, strange))
