"""`ackq doctor`: checks this machine and the path to the broker, and names remedies (Q9)."""

from __future__ import annotations

import os
import sys

import click

from ackq.cli.context import Target, connected
from ackq.cli.diagnosis.findings import print_findings
from ackq.cli.output import print_json
from ackq.diagnosis.connection_state import check_connection
from ackq.diagnosis.finding import Finding, broken
from ackq.diagnosis.machine_state import check_machine


@click.command()
@click.option(
    "--queue", default="", metavar="NAME", help="Also check that this user may look at this queue."
)
@click.option("--no-broker", is_flag=True, help="Check only this machine, not the broker.")
@connected
def doctor(target: Target, *, queue: str, no_broker: bool) -> None:
    """Check Java, Python, Spark, Arrow and the connection to the broker; print remedies.

    Exit status 1 if there is a problem.
    """
    findings = _machine()
    if not no_broker:
        findings += _connection(target, queue)
    if target.as_json:
        found = [each.as_dict() for each in findings]
        print_json({"broken": broken(findings), "findings": found})
    else:
        print_findings(findings)
    if broken(findings):
        sys.exit(1)


# The modules that gather load subprocess, ssl and more, which no other command needs to start.


def _machine() -> list[Finding]:
    from ackq.cli.diagnosis.machine import gather_machine  # noqa: PLC0415

    return check_machine(gather_machine(os.environ))


def _connection(target: Target, queue: str) -> list[Finding]:
    from ackq.cli.diagnosis.connection import gather_connection  # noqa: PLC0415

    return check_connection(gather_connection(target, queue))
