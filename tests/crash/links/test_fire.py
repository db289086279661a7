"""The ledger of links under fire, in short; and a ledger that finds each kind of violation."""

import time
from collections import Counter
from types import SimpleNamespace

import pytest

from tests import servers
from tests.crash.links.faults import Faults
from tests.crash.links.fire import burn
from tests.crash.links.queue_ledger import Combination, QueueLedger, body_of
from tests.crash.links.summary import lines
from tests.crash.links.world import ALL
from tests.sizes import sized
from tests.wire.brokers import rabbitmq_server

IDS = Combination("classic", "ids", "settled")
UNIQUE = Combination("classic", "unique", "settled")
IDENTICAL = Combination("quorum", "identical", "stored")


@pytest.mark.crash
@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.delta
@pytest.mark.timeout(1800)
def test_the_ledger_adds_up(tmp_path):
    """L5-L7, L10, L17, L20, K1: lost 0; doubled 0 with ids, else at most the acks in doubt."""
    if missing := rabbitmq_server.missing():
        servers.absent(missing, rabbitmq_server.REMEDY)
    seed = time.time_ns() % 1_000_000
    print("seed", seed)
    wrong, verdicts, world = burn(seed, sized(10, 30), tmp_path)
    assert wrong == [], f"seed {seed}: {dict(world.figures)}"
    assert set(verdicts) == set(ALL)
    assert sum(verdict.accepted for verdict in verdicts.values()) > 0


def test_faults_end_with_the_links_process():
    """A run whose link process has ended reports it, and does not wait until its time is over."""
    problems = []
    world = SimpleNamespace(
        seed=1, figures=Counter(), accepted=0, problems=problems, report=problems.append
    )
    world.link_ended = "it ended"
    Faults(world, {"kill link": lambda: True}).go_on(3600)
    assert problems == ["it ended"]


def ledger(combination, confirmed=3, unknown=0):
    """A ledger with this many confirmed and unknown messages."""
    made = QueueLedger(combination)
    for _ in range(confirmed):
        made.confirmed.append(made.next()[0])
    for _ in range(unknown):
        made.unknown.append(made.next()[0])
    return made


def rows(*numbers, ids=True):
    """The id (None without) and the body of the messages with these numbers, as accepted."""
    return [(str(number) if ids else None, body_of(number)) for number in numbers]


@pytest.mark.parametrize(
    ("found", "lost", "doubled", "wrong"),
    [
        (rows(0, 1, 2), 0, 0, False),
        (rows(2, 0, 1, 3), 0, 0, False),  # 3 was sent, and not confirmed
        (rows(0, 2), 1, 0, True),
        (rows(0, 1, 2, 2), 0, 1, True),
        (rows(0, 1, 2, 4), 0, 0, True),
        ([*rows(0, 1), ("2", body_of(1))], 1, 1, True),
        ([*rows(0, 1), ("2", body_of(2) + b"x")], 0, 0, True),
    ],
)
def test_messages_with_ids(found, lost, doubled, wrong):
    """L6: messages with ids arrive once each, whatever number of acknowledgements is in doubt."""
    verdict = ledger(IDS, unknown=1).verdict(found, 9)
    assert (verdict.lost, verdict.doubled, verdict.wrong) == (lost, doubled, wrong)


def test_messages_without_ids():
    """L7: as many doubles are allowed as acknowledgements are in doubt, and no more."""
    found = rows(0, 1, 2, 2, ids=False)
    assert not ledger(UNIQUE).verdict(found, 1).wrong
    assert ledger(UNIQUE).verdict(found, 0).wrong


def test_identical_messages():
    """L7: identical messages are compared by their number."""
    same = [(None, b"same")]
    assert not ledger(IDENTICAL, unknown=1).verdict(4 * same, 0).wrong
    assert ledger(IDENTICAL, unknown=1).verdict(5 * same, 0).wrong
    assert not ledger(IDENTICAL, unknown=1).verdict(5 * same, 1).wrong
    assert ledger(IDENTICAL).verdict(2 * same, 9).lost == 1


def test_the_lines_sum_up():
    """L7: the summary has the faults, and the totals with ids and without."""
    verdicts = {
        IDS: ledger(IDS).verdict(rows(0, 1, 2), 5),
        UNIQUE: ledger(UNIQUE, 4).verdict(rows(0, 1, 2, 3, 3, ids=False), 2),
    }
    figures = Counter({"kill link": 2, "reset at a byte there": 3, "taken": 9, "accepted x": 1})
    found = list(lines(verdicts, figures))
    assert found[2] == "faults 5: kill link 2, reset at a byte there 3"
    assert found[3].startswith("links ambiguous 0, matched_held 0")
    assert found[-1].startswith("in all")
    assert found[-1].endswith("accepted      8, lost 0, doubled 1 of 2 in doubt")
    assert "doubled 0 of 0" in found[-3]
    assert "doubled 1 of 2" in found[-2]
