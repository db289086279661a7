"""The root of the command `ackq-broker`.

Commands that change a data directory need exclusive access; they fail while a broker has it open.
"""

from __future__ import annotations

import click

from ackq import __version__
from ackq_broker.cli.history import accept_history, new_history
from ackq_broker.cli.journal import dump, repair, verify
from ackq_broker.cli.link import link
from ackq_broker.cli.serve import serve
from ackq_broker.cli.users import user


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ackq-broker")
def main() -> None:
    """Run the reference broker of ackq, and maintain its data directory and users."""


_COMMANDS = (
    *(serve, verify, dump, repair, new_history, accept_history),
    *(user, link),
)
for _command in _COMMANDS:
    main.add_command(_command)
