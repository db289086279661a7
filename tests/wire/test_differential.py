"""Random programs on ackq and RabbitMQ, which agree except for what `differences.py` lists.

The suite runs a few; for more, and others:

    ACKQ_DIFFERENTIAL=500,7 python -m pytest tests/wire/test_differential.py

runs 500 programs from seed 7.
"""

import os

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.wire.differential import Pair, programs

EXAMPLES, SEED = map(int, os.environ.get("ACKQ_DIFFERENTIAL", "15,1").split(","))


@pytest.mark.timeout(600 + 5 * EXAMPLES)
@seed(SEED)
@settings(
    max_examples=EXAMPLES,
    print_blob=True,
    database=None,
    suppress_health_check=(HealthCheck.too_slow,),
)
@given(program=programs)
def test_both_brokers_agree(ackq_dialect, rabbitmq_dialect, program):
    """P3, P7, P8, C1-C9, C12, C13, Q2-Q4: both brokers agree on random programs of requests."""
    Pair(ackq_dialect, rabbitmq_dialect).run(program)
