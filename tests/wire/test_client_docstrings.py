"""The examples in the client's docstrings, run against a broker (C10, P13).

Each block of examples finds a queue `orders` with the messages `a`, `b` and `c`.
"""

import asyncio
import doctest
import itertools
import queue

import pyarrow as pa
import pytest

from ackq import client
from ackq.client import Admin, Publisher, close_channels, outcomes
from ackq.client.consuming import async_channel, channel
from ackq.client.publishing import async_publisher, transactional
from ackq_broker import embedded
from ackq_link.edge import link as async_link


def blocks():
    """Yields blocks of examples, separated by text, named after the object they document."""
    for module in (outcomes, channel, async_channel, transactional, async_publisher, async_link):
        for found in doctest.DocTestFinder().find(module):
            parts = doctest.DocTestParser().parse(found.docstring)
            number = 0
            for is_example, block in itertools.groupby(
                (part for part in parts if isinstance(part, doctest.Example) or part.strip()),
                key=lambda part: isinstance(part, doctest.Example),
            ):
                if is_example:
                    number += 1
                    name = f"{found.name.rpartition('.')[2]}-{number}"
                    yield pytest.param(found, list(block), id=name)


@pytest.fixture(scope="module")
def endpoint():
    with embedded(sync=False) as broker:
        yield broker.endpoint
        close_channels()


@pytest.mark.parametrize(("found", "block"), list(blocks()))
def test_docstring(endpoint, found, block):
    """C10, P13: a docstring's examples give the output that they show."""
    admin = Admin(endpoint)
    admin.declare_queue("orders")
    admin.purge_queue("orders")
    with Publisher(endpoint, routing_key="orders") as out:
        for body in "abc":
            out.publish(body)
    names = {name: getattr(client, name) for name in client.__all__}
    names |= {
        "asyncio": asyncio,
        "endpoint": endpoint,
        "itertools": itertools,
        "pa": pa,
        "queue": queue,
        "seen": queue.Queue(),
    }
    said = []
    test = doctest.DocTest(block, names, found.name, found.filename, found.lineno, None)
    result = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert result.failed == 0, "".join(said)
    assert result.attempted == len(block)


def test_every_mode_has_an_example():
    """Issue 4: each acknowledge mode has an example in its docstring."""
    shown = outcomes.AcknowledgeMode.__doc__
    for mode in outcomes.AcknowledgeMode:
        assert f"AcknowledgeMode.{mode.name}" in shown
