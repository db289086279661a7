"""Bugs in ownership: a stranger is admitted, or its claim counts for other users (A10)."""

from ackq_broker.core.links import holder as link_holder
from ackq_broker.core.publishing import publishers, writers
from ackq_broker.core.sessions import planned, readers
from ackq_broker.security import permissions
from ackq_broker.service.consuming import service as consuming
from ackq_broker.service.publishing.confirm_mode import ConfirmModeStream
from tests.crash.simulation.bugs.patching import Bug, Line

OWNERS = {
    "owner_of_publisher_not_checked": Bug(
        "P10: another user opens a publisher whose id it knows",
        Line(publishers.open_publisher, "known.user, command.user", '"", ""'),
        Line(publishers.apply_publisher_opened, "assert not foreign(known.user, record.user)"),
    ),
    "lowest_unanswered_not_bounded": Bug(
        "P10: a frame calls numbers answered that its stream has not shown",
        Line(ConfirmModeStream._pend, "if header.lowest_unanswered > self._shown:", "if False:"),
    ),
    "owner_of_writer_not_checked": Bug(
        "A10: another user stages and commits under a writer's name",
        Line(writers.check_user, "writer.user, user, remedy", '"", "", remedy'),
        Line(writers.claim, 'assert writer.user in ("", user)'),
    ),
    "batches_of_all_users": Bug(
        "S11: a fetch of another user says which batch a query has planned",
        Line(planned.known_batch, 'owners = (user, "") if user else tuple(', "owners = tuple("),
    ),
    "runs_of_all_users": Bug(
        "S6: a fetch of another user counts as one of the run that it names",
        Line(
            readers.sessions_of_run,
            'for who in {user, ""} for name in state.runs.get((who, run_id), ())',
            "for key in state.runs if key[1] == run_id for name in state.runs[key]",
        ),
        Line(readers._is, "return same and not foreign(reader.user, owner.user)", "return same"),
    ),
    "session_of_another_read": Bug(
        "A2: a session is read by who may not read its queues",
        Line(permissions._session_needs, "for queue in session.queues:", "for queue in ():"),
        Line(permissions._session_needs, "if not session.queues:", "if False:"),
    ),
    "owner_of_channel_not_checked": Bug(
        "A10: another user resumes a channel whose id it knows",
        Line(consuming._check_readable, "channel.user, caller.user", '"", ""'),
        Line(consuming._check_readable, "caller.require(", "tuple("),
    ),
    "owner_of_link_not_checked": Bug(
        "L1: another user, who may write to its queue, runs a link",
        Line(link_holder._again, "found.user, command.user", '"", ""'),
        links=True,
    ),
}
