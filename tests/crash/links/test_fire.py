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


BARE = rows(0, 1, 2, 2, ids=False)
SAME = [(None, b"same")]


@pytest.mark.parametrize(
    ("combination", "unknown", "found", "ambiguous", "lost", "doubled", "wrong"),
    [
        (IDS, 1, rows(0, 1, 2), 9, 0, 0, False),
        (IDS, 1, rows(2, 0, 1, 3), 9, 0, 0, False),  # 3 was sent, and not confirmed
        (IDS, 1, rows(0, 2), 9, 1, 0, True),
        (IDS, 1, rows(0, 1, 2, 2), 9, 0, 1, True),  # whatever number is in doubt
        (IDS, 1, rows(0, 1, 2, 4), 9, 0, 0, True),
        (IDS, 1, [*rows(0, 1), ("2", body_of(1))], 9, 1, 1, True),
        (IDS, 1, [*rows(0, 1), ("2", body_of(2) + b"x")], 9, 0, 0, True),
        (UNIQUE, 0, BARE, 1, 0, 1, False),  # one doubled message, one acknowledgement in doubt
        (UNIQUE, 0, BARE, 0, 0, 1, True),
        (IDENTICAL, 1, 4 * SAME, 0, 0, 0, False),  # compared by their number
        (IDENTICAL, 1, 5 * SAME, 0, 0, 1, True),
        (IDENTICAL, 1, 5 * SAME, 1, 0, 1, False),
        (IDENTICAL, 0, 2 * SAME, 9, 1, 0, True),
    ],
)
def test_a_verdict(combination, unknown, found, ambiguous, lost, doubled, wrong):
    """L6, L7: with ids each message is once; without, doubles are those in doubt at most."""
    verdict = ledger(combination, unknown=unknown).verdict(found, ambiguous)
    assert (verdict.lost, verdict.doubled, verdict.wrong) == (lost, doubled, wrong)


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
