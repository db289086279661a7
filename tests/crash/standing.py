"""The state of a query whose driver died: its checkpoint compared with the broker."""

import json

from ackq.client import Admin
from ackq.errors import AckqError

NOT_COMMITTED = "offsets/N, not commits/N"
NOT_ACCEPTED = "commits/N, not accepted"
ACCEPTED = "accepted"


def of(folder, endpoint, queue):
    """The state of the query; "unknown" if the broker does not answer."""
    offsets, commits = newest(folder / "offsets"), newest(folder / "commits")
    if offsets < 0:
        return "nothing"
    if commits < offsets:
        return NOT_COMMITTED
    end = json.loads((folder / "offsets" / str(offsets)).read_text().splitlines()[-1])
    try:
        with Admin(endpoint) as admin:
            sessions = {info.session: info for info in admin.sessions() if queue in info.queues}
    except AckqError:
        return "unknown"
    found = sessions.get(end.get("session"))
    if found is None or found.incarnation != end["incarnation"]:
        return "unknown"
    return NOT_ACCEPTED if found.floor_tag < end["tag"] else ACCEPTED


def newest(log):
    """The last batch in a folder of a checkpoint; -1 for none."""
    return max((int(file.name) for file in log.glob("[0-9]*")), default=-1)


def lose_commit(folder):
    """Removes the last batch from `commits`, as a power loss does; returns its number."""
    last = newest(folder / "commits")
    for name in (str(last), f".{last}.crc"):
        (folder / "commits" / name).unlink(missing_ok=True)
    return last
