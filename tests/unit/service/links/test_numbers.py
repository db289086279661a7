"""Delivery numbers by position, compared with a dictionary: rule L10."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from ackq_broker.core.commands import LinkedRun
from ackq_broker.service.links.numbers import DeliveryNumbers


def run(first_number, rows, first_position):
    return LinkedRun(first_number, rows, first_position, matched=False, permitted=False)


def positions(*values):
    return np.array(values, np.uint64)


@given(st.data())
def test_as_a_dictionary(data):
    """L10: delivery numbers match a dictionary, for any runs taken in any parts."""
    numbers, known, number, free = DeliveryNumbers(), {}, 1, list(range(1, 200, 7))
    free = data.draw(st.permutations(free))
    for _ in range(data.draw(st.integers(1, 6))):
        runs = []
        for _ in range(data.draw(st.integers(0, 4))):
            rows, position = data.draw(st.integers(1, 7)), free.pop()
            runs.append(run(number, rows, position))
            known |= {position + each: number + each for each in range(rows)}
            number += rows
        numbers.add(runs)
        taken = data.draw(st.lists(st.sampled_from(sorted(known)), unique=True)) if known else []
        first, last, _ = numbers.take(positions(*taken))
        found = [each for a, b in zip(first, last, strict=True) for each in range(a, b + 1)]
        assert found == [known.pop(position) for position in taken]
        assert len(numbers) == len(known)


def test_a_range_has_one_outcome():
    """L28: delivery ranges have one outcome each; outcomes are sent only if any is a rejection.

    A position without a delivery is an error, as its permit would ack another message (L10).
    """
    numbers = DeliveryNumbers()
    numbers.add([run(1, 6, 1), run(7, 1, 20)])
    taken = numbers.take(positions(2, 5, 1, 3, 4), BitMap64((2, 5)))
    assert taken == ([2, 5, 1, 3], [2, 5, 1, 4], [1, 1, 0, 0])
    assert numbers.take(positions(6), BitMap64()) == ([6], [6], [])
    for unknown in (0, 7, 21):
        with pytest.raises(AssertionError):
            numbers.take(positions(unknown))
