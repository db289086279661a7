"""A short chain from RabbitMQ to Artemis; and a ledger that finds each kind of violation."""

import time

import pytest

from tests.optional import needs

needs("proton", "amqp1")

from tests import servers  # noqa: E402
from tests.crash.links.chain import delivered  # noqa: E402
from tests.crash.links.end_to_end import burn  # noqa: E402
from tests.sizes import sized  # noqa: E402
from tests.wire.brokers import rabbitmq_server  # noqa: E402
from tests.wire.links.amqp1.artemis import Artemis  # noqa: E402


@pytest.mark.crash
@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_each_message_arrives_once(tmp_path):
    """L5, L6, L9, L22, L23, K1, K3: each message is in Artemis once, whatever was killed."""
    if missing := rabbitmq_server.missing():
        servers.absent(missing, rabbitmq_server.REMEDY)
    try:
        Artemis(tmp_path / "jars", None).jars()
    except RuntimeError as error:
        servers.absent("Artemis", str(error).partition("\n")[0])
    seed = time.time_ns() % 1_000_000
    print("seed", seed)
    wrong, found, chain = burn(seed, sized(20, 60), tmp_path / "run")
    assert wrong == [], f"seed {seed}: {dict(chain.figures)}"
    assert found.confirmed > 0
    assert any(n for name, n in chain.figures.items() if name.startswith("kill"))


@pytest.mark.parametrize(
    ("names", "lost", "doubled", "strange"),
    [
        (["0", "1", "2"], 0, 0, 0),
        (["2", "0", "1", "3"], 0, 0, 0),  # 3 was sent, and not confirmed
        (["0", "2"], 1, 0, 0),
        (["0", "1", "1", "2"], 0, 1, 0),
        (["0", "1", "2", "4"], 0, 0, 1),
    ],
)
def test_what_is_wrong(names, lost, doubled, strange):
    """L22: each confirmed message arrives once, and no other except the one in flight."""
    found = delivered([(name, name.encode()) for name in names], {0, 1, 2})
    assert (found.lost, found.doubled, found.strange) == (lost, doubled, strange)
    assert found.wrong == any((lost, doubled, strange))


def test_another_body_is_wrong():
    """L22: a message that arrives with another body is a violation."""
    assert delivered([("0", b"1")], {0}).strange == 1
