"""`ackq exchange`, `ackq bind` and `ackq unbind`: the routing of messages to queues (Q2)."""

from __future__ import annotations

import click

from ackq import client
from ackq.cli.context import Group, Target, connected
from ackq.cli.output import as_dict, print_json, print_table
from ackq.cli.parameters import confirm, yes_option
from ackq.diagnosis.wording import count


@click.group(cls=Group)
def exchange() -> None:
    """Declare, list and delete exchanges."""


@exchange.command()
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(["direct", "fanout", "topic"]),
    default="topic",
    show_default=True,
    help="How the exchange matches routing keys.",
)
@click.option(
    "--durable/--no-durable",
    default=True,
    show_default=True,
    help="Whether the exchange survives a restart of the broker.",
)
@connected
def declare(target: Target, *, name: str, kind: client.ExchangeKind, durable: bool) -> None:
    """Create the exchange NAME, or check that it exists with this kind."""
    with target.admin() as admin:
        created = admin.declare_exchange(name, kind, durable=durable).created
    text = f"exchange '{name}' {'created' if created else 'exists'}"
    target.answer({"exchange": name, "created": created}, text)


@exchange.command("list")
@connected
def list_exchanges(target: Target) -> None:
    """List the exchanges with their bindings."""
    with target.admin() as admin:
        found = [as_dict(each) for each in admin.exchanges()]
    if target.as_json:
        print_json(found)
        return
    print_table(
        ("EXCHANGE", "KIND", "DURABLE", "QUEUE", "BINDING KEY"),
        (
            (each["exchange"], each["type"], each["durable"], bound["queue"], bound["binding_key"])
            for each in found
            for bound in each["bindings"] or [{"queue": "", "binding_key": ""}]
        ),
    )


@exchange.command()
@click.argument("name")
@yes_option
@connected
def delete(target: Target, *, name: str, yes: bool) -> None:
    """Remove the exchange NAME and its bindings.

    Asks for confirmation: messages published to the exchange from then on are refused.
    """
    with target.admin() as admin:
        there = sum(len(each.bindings) for each in admin.exchanges() if each.exchange == name)
        confirm(f"Delete exchange '{name}' and its {count(there, 'binding')}?", yes=yes)
        bindings = admin.delete_exchange(name)
    text = f"exchange '{name}' deleted with {count(bindings, 'binding')}"
    target.answer({"exchange": name, "bindings": bindings}, text)


@click.command()
@click.argument("exchange")
@click.argument("queue")
@click.argument("binding_key", default="")
@connected
def bind(target: Target, *, exchange: str, queue: str, binding_key: str) -> None:
    """Bind QUEUE to EXCHANGE by BINDING_KEY (topic: `*` is one word, `#` any number)."""
    with target.admin() as admin:
        created = admin.bind(exchange, queue, binding_key)
    made = _binding(exchange, queue, binding_key) | {"created": created}
    target.answer(made, f"binding {'created' if created else 'exists'}")


@click.command()
@click.argument("exchange")
@click.argument("queue")
@click.argument("binding_key", default="")
@connected
def unbind(target: Target, *, exchange: str, queue: str, binding_key: str) -> None:
    """Remove the binding of QUEUE to EXCHANGE by BINDING_KEY."""
    with target.admin() as admin:
        removed = admin.unbind(exchange, queue, binding_key)
    gone = _binding(exchange, queue, binding_key) | {"removed": removed}
    target.answer(gone, "binding removed" if removed else "there was no such binding")


def _binding(exchange: str, queue: str, binding_key: str) -> dict[str, object]:
    return {"exchange": exchange, "queue": queue, "binding_key": binding_key}
