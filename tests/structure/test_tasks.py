"""Threads and tasks: no executor blocks a loop, and no task fails silently."""

import ast

from tests.structure.product import modules, unjustified

# Tasks whose creator awaits them, or takes their result.
AWAITED = {
    "ackq.client.consuming.async_channel:__init__": "its close awaits it",
    "ackq_link.amqp091.subscription:start": "their end ends the subscription",
    "ackq_link.amqp091.target:publish": "it gathers the confirms",
    "ackq_link.inbound:_open": "it awaits or cancels it",
    "ackq_link.inbound:run": "it logs each error and goes on",
    "ackq_link.jetstream.connection:_answer": "it takes the result or cancels it",
    "ackq_link.jetstream.subscription:_is_sure": "its callback takes the result",
    "ackq_link.jetstream.target:_take": "its callback takes the result",
    "ackq_link.outbound:add": "its callback takes the result",
    "ackq_link.outbound:or_cut": "it takes the result",
    "ackq_link.runner:run": "it waits for all links",
    "ackq_link.process:unless": "it takes the result",
    "ackq_link.transfer:_begin": "it takes the result",
    "ackq_link.transfer:_take": "its callback takes the result",
    "ackq_link.transfer:run": "the first to end ends the transfer",
    "ackq_broker.service.blocks.sending:build_ahead": "it takes the result",
    "ackq_broker.http.listing:within": "its next call takes the result",
    "ackq_broker.engine.engine:background": "its exception ends the broker",
    "ackq_broker.security.authorization:audited": "its caller or the audit has its result",
    "ackq_broker.service.transport.stream_buffers:alongside": "the first to end ends all",
}


def functions():
    """(module, function) of every function of the product; an inner one by itself."""
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, node


def calls(node):
    """The calls in a function, by the name of the called object."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            called = each.func
            yield called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def test_no_executor_is_a_context_in_async_code():
    """An executor's exit waits for its threads: a cancelled coroutine would block the loop."""
    found = [
        f"{module}:{node.name}"
        for module, node in functions()
        if isinstance(node, ast.AsyncFunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.With)
        for item in inner.items
        if "ThreadPoolExecutor" in ast.unparse(item.context_expr)
    ]
    assert found == []


def test_each_task_is_watched():
    """A background task logs and goes on, or ends the broker: `Engine.background` starts it."""
    found = {
        f"{module}:{node.name}"
        for module, node in functions()
        if {"create_task", "ensure_future"} & set(calls(node))
    }
    assert unjustified(found, AWAITED) == []
