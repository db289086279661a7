"""The broker of a job: its endpoint, and the credentials of the job."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ackq.client.connection.broker import FLAGS, Broker
from ackq.client.connection.security import Security


def add_security(made: argparse.ArgumentParser) -> None:
    """Adds the arguments of `Security`; their defaults are the environment's, ACKQ_CA and so on."""
    group = made.add_argument_group(
        "security",
        "each option may also be set in the environment: ACKQ_CA, ACKQ_TOKEN_FILE and so on",
    )
    for setting in FLAGS:
        default = os.environ.get(setting.variable, "")
        form: dict[str, Any] = {"metavar": setting.metavar, "default": default}
        if not setting.metavar:
            form = {"action": "store_true", "default": default.lower() in {"1", "true", "yes"}}
        group.add_argument(setting.flag, help=setting.help, **form)


def broker(args: argparse.Namespace) -> Broker:
    """The broker that the arguments name; raises as `Security`."""
    given = {each.field: getattr(args, each.field) for each in FLAGS}
    made = Broker(args.endpoint, Security.of_settings(given))
    made.security.check_endpoint(made.endpoint)
    return made
