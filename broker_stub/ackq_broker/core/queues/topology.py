"""Queues, exchanges and bindings: declared, purged and deleted (Q1, Q2, Q4).

Invariant: a binding names an exchange and a queue that exist; a queue id is never given twice.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec
from pyroaring import BitMap64

from ackq import limits
from ackq.errors import (
    ExchangeNotFoundError,
    InUseError,
    InvalidArgumentError,
    LimitError,
    PropertiesDifferError,
)
from ackq_broker.core import commands, records
from ackq_broker.core.checks import (
    BUILT_IN_DEAD,
    check_characters,
    check_duration,
    check_length,
    check_new,
    plural,
    queue_named,
)
from ackq_broker.core.commands import Decision, DeclaredQueue, DeletedQueue, LinkAck
from ackq_broker.core.fields import QueueProperties
from ackq_broker.core.state.exchange import KINDS, Exchange, check_words
from ackq_broker.core.state.queue import Gone, Queue
from ackq_broker.core.state.state import State

_OVERFLOWS: Final = ("reject-publish", "drop-head")
_DURATIONS: Final = (
    "message_ttl_ms",
    "expires_ms",
    "redelivery_delay_ms",
    "redelivery_delay_max_ms",
    "retain_ms",
)


def declare_queue(state: State, command: commands.DeclareQueue, _now_us: int) -> Decision:
    """Q1: declares a queue, or confirms that it exists."""
    if command.passive:
        queue = queue_named(state, command.queue)
        warnings = _warnings(state, queue.name, queue.properties)
        return Decision(reply=DeclaredQueue(queue.queue_id, False, warnings))
    # The built-in queue is in the definitions of a broker that has dead letters in it (O7).
    if (command.queue, command.properties) != (BUILT_IN_DEAD, QueueProperties()):
        check_new("queue", command.queue)
    _check_properties(command.queue, command.properties)
    warnings = _warnings(state, command.queue, command.properties)
    queue_id = state.queue_ids.get(command.queue)
    if queue_id is not None:
        _check_same(state.queues[queue_id], command.properties)
        state.queues[queue_id].use()
        return Decision(reply=DeclaredQueue(queue_id, False, warnings))
    check_characters("queue", command.queue)
    if len(state.queue_ids) >= limits.MAX_QUEUES:
        raise LimitError(
            f"The queue '{command.queue}' was not made: the broker has {limits.MAX_QUEUES} "
            "queues, its limit. Delete unused queues.",
            queue=command.queue,
            limit=limits.MAX_QUEUES,
        )
    record = records.QueueDeclared(state.next_queue_id, command.queue, command.properties)
    return Decision((record,), DeclaredQueue(state.next_queue_id, True, warnings))


def _warnings(state: State, name: str, properties: QueueProperties) -> tuple[str, ...]:
    """Warnings about queue properties that have no effect (Q1, C13)."""
    found = []
    target = properties.dead_letter_queue
    if properties.delivery_limit and not target and not properties.drop_on_limit:
        found.append(
            f"The delivery limit of queue '{name}' has no effect: it has no dead-letter queue, so "
            "messages that fail are delivered again without end. Declare it with a dead-letter "
            "queue, or with drop_on_limit to lose such messages."
        )
    if target and target != name and target not in state.queue_ids:
        found.append(
            f"The dead-letter queue '{target}' of queue '{name}' does not exist. Until it is "
            f"declared, dead letters go to '{BUILT_IN_DEAD}'."
        )
    return tuple(found)


def apply_queue_declared(state: State, sequence: int, record: records.QueueDeclared) -> None:
    """Adds a declared queue."""
    assert record.queue_id == state.next_queue_id
    assert record.queue not in state.queue_ids
    state.next_queue_id += 1
    queue = Queue(
        record.queue_id, record.queue, record.properties, state.signals, state.blocks.sizes
    )
    add_queue(state, queue)
    state.topology_sequence = sequence


def add_queue(state: State, queue: Queue) -> None:
    """Adds a queue, its name, and its relations to dead-letter queues."""
    state.queues[queue.queue_id] = queue
    if queue.deleted:
        return
    state.queue_ids[queue.name] = queue.queue_id
    queue.sources = state.dead_letters_to.get(queue.name, queue.sources)
    target = queue.properties.dead_letter_queue
    if target and target != queue.name:
        sources = state.dead_letters_to.setdefault(target, set())
        sources.add(queue.queue_id)
        if target in state.queue_ids:
            state.queues[state.queue_ids[target]].sources = sources
    queue.use()


def delete_queue(state: State, command: commands.DeleteQueue, _now_us: int) -> Decision:
    """Q4: refuses a queue in use, unless forced; unacked messages stay until settled."""
    queue = queue_named(state, command.queue)
    links = sorted(queue.links)
    kept = [name for name in links if not command.force or len(state.links[name].entries)]
    if kept:
        raise _linked(queue, "deleted", kept[0])
    if command.if_empty and queue.messages:
        raise InUseError(
            f"The queue '{queue.name}' was not deleted: it holds "
            f"{plural(queue.messages, 'message')}, and the request deletes it only when it is "
            "empty. Purge it, or delete it without that condition.",
            queue=queue.name,
            messages=queue.messages,
        )
    if queue.in_use and not command.force:
        raise _in_use(state, queue)
    waiting = len(queue.ready) + len(queue.delayed)
    return Decision(
        (*map(records.LinkRemoved, links), records.QueueDeleted(queue.queue_id)),
        DeletedQueue(waiting, len(queue.unacked)),
    )


def apply_queue_deleted(state: State, sequence: int, record: records.QueueDeleted) -> None:
    """Removes the name, the bindings and the waiting messages of a deleted queue."""
    queue = state.queues[record.queue_id]
    detach_queue(state, queue)
    state.blocks.release(queue.drop(queue.ready | queue.delayed, Gone.PURGED))
    _end_retention(state, queue)
    forget_if_drained(state, queue)
    state.topology_sequence = sequence


def detach_queue(state: State, queue: Queue) -> None:
    """Removes the queue's name, its bindings, and every reference of a session or queue to it."""
    for exchange, binding_key in queue.bindings:
        state.exchanges[exchange].unbind(binding_key, queue.queue_id)
    state.bindings -= len(queue.bindings)
    for name in queue.sessions:
        session = state.sessions[name]
        session.queue_ids = tuple(i for i in session.queue_ids if i != queue.queue_id)
    sources = state.dead_letters_to.get(queue.properties.dead_letter_queue, set())
    sources.discard(queue.queue_id)
    if not sources:
        state.dead_letters_to.pop(queue.properties.dead_letter_queue, None)
    target_id = state.queue_ids.get(queue.properties.dead_letter_queue)
    if target_id is not None:
        state.queues[target_id].use()
    queue.bindings = set()
    queue.sessions = set()
    queue.sources = set()
    queue.forget_deadlines()
    if not queue.deleted:
        del state.queue_ids[queue.name]
        queue.deleted = True


def forget_if_drained(state: State, queue: Queue) -> None:
    """Removes a deleted queue once it has no leased or kept message."""
    if queue.deleted and queue.drained:
        state.signals.departed += queue.totals()
        del state.queues[queue.queue_id]


def requeue(state: State, queue_id: int, positions: BitMap64, sequence: int) -> None:
    """Requeues unacked messages, or drops them if their queue was deleted (Q4)."""
    queue = state.queues[queue_id]
    if queue.deleted:
        queue.dropped += len(positions)
        state.blocks.release(queue.discard(positions))
        forget_if_drained(state, queue)
    else:
        queue.requeue(positions, sequence)


def purge_queue(state: State, command: commands.PurgeQueue, now_us: int) -> Decision:
    """Q4, S7, S13: removes ready messages only, and ends the retention of accepted ones."""
    queue = queue_named(state, command.queue)
    if not queue.ready and not queue.kept and not queue.replays:
        return Decision(reply=0)
    for name in sorted(queue.links):
        # Purged messages would be acknowledged at the remote broker, and lost from both.
        link = state.links[name]
        if link.ack is LinkAck.SETTLED and not link.held(queue).isdisjoint(queue.ready):
            raise _linked(queue, "purged", name)
    return Decision((records.QueuePurged(queue.queue_id, now_us),), len(queue.ready))


def apply_queue_purged(state: State, _sequence: int, record: records.QueuePurged) -> None:
    """Drops the ready messages of a purged queue, and the retained ones."""
    queue = state.queues[record.queue_id]
    state.blocks.release(queue.drop(queue.ready.copy(), Gone.PURGED))
    _end_retention(state, queue)
    queue.retained.from_us = record.at_us


def _end_retention(state: State, queue: Queue) -> None:
    """S13: removes the retained messages of a queue; a replay of a batch still reads its own (K2).

    Their tags become holes. A retained lease is replaced, as a snapshot may be encoding it.
    """
    state.blocks.release(queue.release_kept(queue.retained.end()))
    for name in state.sessions if queue.kept or queue.replays else ():
        kept = state.sessions[name].kept
        for index, lease in enumerate(kept[:-1]):
            for segment in lease.segments:
                if segment.queue_id != queue.queue_id:
                    continue
                if positions := segment.present(lease.holes):
                    state.blocks.release(queue.release_kept(positions))
                    kept[index] = msgspec.structs.replace(lease)
                    kept[index].add_holes(segment.tags(positions), Gone.PURGED)


def declare_exchange(state: State, command: commands.DeclareExchange, _now_us: int) -> Decision:
    """Q2: declares an exchange, or confirms that it exists."""
    check_new("exchange", command.exchange)
    if command.kind not in KINDS:
        raise InvalidArgumentError(
            f"The exchange '{command.exchange}' cannot be of type '{command.kind}'. Types: "
            f"{', '.join(KINDS)}.",
            exchange=command.exchange,
        )
    found = state.exchanges.get(command.exchange)
    if found is not None:
        if (found.kind, found.durable) != (command.kind, command.durable):
            raise PropertiesDifferError(
                f"The exchange '{found.name}' exists as "
                f"{_exchange_text(found.kind, found.durable)}, not as "
                f"{_exchange_text(command.kind, command.durable)}. Declare it as it is, or delete "
                "it first.",
                exchange=found.name,
            )
        return Decision(reply=False)
    check_characters("exchange", command.exchange)
    if len(state.exchanges) >= limits.MAX_EXCHANGES:
        raise LimitError(
            f"The exchange '{command.exchange}' was not made: the broker has "
            f"{limits.MAX_EXCHANGES} exchanges, its limit. Delete unused exchanges.",
            exchange=command.exchange,
            limit=limits.MAX_EXCHANGES,
        )
    record = records.ExchangeDeclared(command.exchange, command.kind, command.durable)
    return Decision((record,), True)


def apply_exchange_declared(state: State, sequence: int, record: records.ExchangeDeclared) -> None:
    """Adds a declared exchange."""
    state.exchanges[record.exchange] = Exchange(
        record.exchange, record.kind, durable=record.durable, cache=state.route_cache
    )
    state.topology_sequence = sequence


def delete_exchange(state: State, command: commands.DeleteExchange, _now_us: int) -> Decision:
    """Q2: removes an exchange with its bindings."""
    exchange = _exchange_named(state, command.exchange)
    count = sum(len(queue_ids) for queue_ids in exchange.bindings.values())
    return Decision((records.ExchangeDeleted(exchange.name),), count)


def apply_exchange_deleted(state: State, sequence: int, record: records.ExchangeDeleted) -> None:
    """Removes a deleted exchange and its bindings."""
    drop_exchange(state, record.exchange)
    state.topology_sequence = sequence


def drop_exchange(state: State, name: str) -> None:
    """Removes an exchange together with its bindings."""
    for binding_key, queue_ids in state.exchanges.pop(name).bindings.items():
        for queue_id in queue_ids:
            state.queues[queue_id].bindings.remove((name, binding_key))
            state.bindings -= 1


def bind(state: State, command: commands.Bind, _now_us: int) -> Decision:
    """Q2: adds a binding; a repeated one is a success."""
    exchange = _exchange_named(state, command.exchange)
    queue = queue_named(state, command.queue)
    check_length("The binding key", command.binding_key, limits.MAX_ROUTING_KEY_BYTES)
    if exchange.has(command.binding_key, queue.queue_id):
        return Decision(reply=False)
    if exchange.kind == "topic":
        check_words("binding key", command.binding_key)
    if state.bindings >= limits.MAX_BINDINGS:
        raise LimitError(
            f"The binding of '{queue.name}' to '{exchange.name}' was not made: the broker has "
            f"{limits.MAX_BINDINGS} bindings, its limit. Remove some.",
            limit=limits.MAX_BINDINGS,
        )
    return Decision((records.QueueBound(exchange.name, queue.queue_id, command.binding_key),), True)


def apply_queue_bound(state: State, sequence: int, record: records.QueueBound) -> None:
    """Adds a binding of a queue to an exchange."""
    state.exchanges[record.exchange].bind(record.binding_key, record.queue_id)
    state.queues[record.queue_id].bindings.add((record.exchange, record.binding_key))
    state.bindings += 1
    state.topology_sequence = sequence


def unbind(state: State, command: commands.Unbind, _now_us: int) -> Decision:
    """Q2: removes a binding; a missing one is a success."""
    exchange = _exchange_named(state, command.exchange)
    queue = queue_named(state, command.queue)
    if not exchange.has(command.binding_key, queue.queue_id):
        return Decision(reply=False)
    return Decision(
        (records.QueueUnbound(exchange.name, queue.queue_id, command.binding_key),), True
    )


def apply_queue_unbound(state: State, sequence: int, record: records.QueueUnbound) -> None:
    """Removes a binding of a queue to an exchange."""
    state.exchanges[record.exchange].unbind(record.binding_key, record.queue_id)
    state.queues[record.queue_id].bindings.remove((record.exchange, record.binding_key))
    state.bindings -= 1
    state.topology_sequence = sequence


def _check_properties(queue: str, properties: QueueProperties) -> None:
    if properties.overflow not in _OVERFLOWS:
        raise InvalidArgumentError(
            f"The queue '{queue}' cannot have overflow '{properties.overflow}'. "
            f"Values: {', '.join(_OVERFLOWS)}.",
            queue=queue,
        )
    check_length(
        "The name of the dead-letter queue", properties.dead_letter_queue, limits.MAX_NAME_BYTES
    )
    for name in _DURATIONS:
        check_duration(f"The queue '{queue}' cannot have {name}", getattr(properties, name))
    longest, first = properties.redelivery_delay_max_ms, properties.redelivery_delay_ms
    if longest and longest < first:
        raise InvalidArgumentError(
            f"The queue '{queue}' cannot have redelivery_delay_max_ms {longest} below "
            f"redelivery_delay_ms {first}. The delay begins with the latter and doubles up to the "
            "former; 0 means 5 minutes.",
            queue=queue,
        )


def _check_same(queue: Queue, properties: QueueProperties) -> None:
    if queue.properties == properties:
        return
    have = msgspec.to_builtins(queue.properties)
    want = msgspec.to_builtins(properties)
    differing = ", ".join(
        f"{name} is {json.dumps(have[name])}, asked for {json.dumps(want[name])}"
        for name in have
        if have[name] != want[name]
    )
    raise PropertiesDifferError(
        f"The queue '{queue.name}' exists with other properties: {differing}. Declare it as it is, "
        "declare it passively, or delete it first.",
        queue=queue.name,
    )


def _linked(queue: Queue, what: str, link: str) -> InUseError:
    """L13: the error for a link's queue, whose messages would be lost at the remote broker too."""
    return InUseError(
        f"The queue '{queue.name}' was not {what}: the link '{link}' brings messages to it, which "
        "would be lost here and acknowledged at the remote broker. Stop that link and remove it "
        f"with `ackq link remove {link} --forget`: the remote broker keeps the messages that it "
        "has.",
        queue=queue.name,
        link=link,
    )


def _in_use(state: State, queue: Queue) -> InUseError:
    sources = sorted(state.queues[queue_id].name for queue_id in queue.sources)
    uses = [
        f"{plural(len(queue.sessions), 'session')} ({', '.join(sorted(queue.sessions)[:3])})"
        if queue.sessions
        else "",
        f"{plural(len(queue.unacked), 'unacked message')}" if queue.unacked else "",
        f"{plural(queue.staged, 'staged message')}" if queue.staged else "",
        f"{plural(queue.consumers, 'consumer')}" if queue.consumers else "",
        f"{plural(len(sources), 'queue')} ({', '.join(sources[:3])}) as dead-letter queue"
        if sources
        else "",
    ]
    return InUseError(
        f"The queue '{queue.name}' was not deleted: it is in use by "
        f"{' and '.join(u for u in uses if u)}. Stop its readers, release sessions whose queries "
        "have ended (`ackq session release NAME`), drop batches whose writes have died (`ackq "
        "batch list`), or force the delete.",
        queue=queue.name,
        sessions=",".join(sorted(queue.sessions)),
        unacked=len(queue.unacked),
        staged=queue.staged,
        consumers=queue.consumers,
        sources=",".join(sources),
    )


def _exchange_named(state: State, name: str) -> Exchange:
    if not name:
        raise InvalidArgumentError(
            "The default exchange '' routes by queue name; it cannot be bound, unbound or deleted. "
            "Declare an exchange of your own.",
            exchange=name,
        )
    exchange = state.exchanges.get(name)
    if exchange is None:
        raise exchange_not_found(name)
    return exchange


def exchange_not_found(name: str) -> ExchangeNotFoundError:
    """The error for a missing exchange, with the remedy."""
    return ExchangeNotFoundError(
        f"There is no exchange '{name}'. Declare it with `ackq exchange declare {name}`, or leave "
        "the exchange empty to route by queue name.",
        exchange=name,
    )


def _exchange_text(kind: str, durable: bool) -> str:  # noqa: FBT001
    return f"a {'durable' if durable else 'non-durable'} {kind} exchange"
