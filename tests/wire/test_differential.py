"""Random programs on ackq and RabbitMQ, which agree but for what `differences.py` lists.

A few in the suite; more, and others, by a command:

    ACKQ_DIFFERENTIAL=500,7 python -m pytest tests/wire/test_differential.py

runs 500 programs from seed 7.
"""

import os

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.wire.differential import Pair, programs

EXAMPLES, SEED = map(int, os.environ.get("ACKQ_DIFFERENTIAL", "15,1").split(","))


@pytest.mark.timeout(120 + 5 * EXAMPLES)
@seed(SEED)
@settings(
    max_examples=EXAMPLES,
    print_blob=True,
    database=None,
    suppress_health_check=(HealthCheck.too_slow,),
)
@given(program=programs)
def test_both_brokers_agree(ackq_dialect, rabbitmq_dialect, program):
    """P3, P7, P8, C1-C9, C12, C13, Q2-Q4: whatever is asked, in any order, both do the same."""
    Pair(ackq_dialect, rabbitmq_dialect).run(program)
