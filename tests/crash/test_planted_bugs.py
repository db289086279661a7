"""The simulation finds bugs that are planted in the product.

All of them, with the number of seeds that each takes: `python tests/crash/simulate.py --bugs`.
"""

import pytest

from tests.crash.simulation.bugs import BUGS
from tests.crash.simulation.search import LINK_SECONDS, SECONDS, Choice, quiet, run

LEAST, LEAST_OF_LINKS = 50, 20
# Some bugs that are found soon, and far more seeds than they need.
SOON = (
    "group_not_synced",
    "snapshot_not_synced",
    "live_segment_deleted",
    "number_of_another_publisher",
    "repeated_in_a_shared_block",
    "fetch_off_by_one",
    "shared_block_counted_once",
    "owner_of_publisher_not_checked",
    "rewound_twice",
    "lowest_unanswered_not_bounded",
    "held_is_permitted",
    "permitted_content_matched",
    "epoch_of_link_not_raised",
    "older_stream_permits",
)
MOST_SEEDS = 60


def test_every_bug_can_be_planted():
    """I1, I2: every line that a bug removes exists, and is restored."""
    of_links = sum(bug.links for bug in BUGS.values())
    assert len(BUGS) - of_links >= LEAST
    assert of_links >= LEAST_OF_LINKS
    for name, bug in BUGS.items():
        codes = [line.function.__code__ for line in bug.lines]
        with bug():
            for line, code in zip(bug.lines, codes, strict=True):
                assert line.function.__code__ is not code, name
        assert [line.function.__code__ for line in bug.lines] == codes
        assert bug.what


@pytest.mark.parametrize("name", SOON)
def test_a_planted_bug_is_found(name):
    """P4, P10, Q7, I1, I4, A10, S2, S14, L1, L7, L9, L10: one of a few worlds fails with it."""
    links = BUGS[name].links
    seconds = LINK_SECONDS if links else SECONDS
    choices = (Choice(seed, seconds, links=links) for seed in range(MOST_SEEDS))
    with quiet(), BUGS[name]():
        assert any(run(choice)[0].failure for choice in choices)
