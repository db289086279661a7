"""The users of a world: an owner with all rights, a stranger with few (A1, A2, A10)."""

from types import SimpleNamespace

from ackq_broker.security.name_pattern import NamePattern
from ackq_broker.security.users import User, Users, hash_of

OWNER, STRANGER = "alice", "mallory"
# The one queue that the stranger may make, read and write to; in some worlds it writes to any.
OWN = "own"
# The share of worlds that have users.
_SHARE = 0.2


class Security:
    """Replaces the broker's `SecurityOptions`: users without a users file.

    Args:
        write: Pattern of the names that the stranger may write to.
    """

    def __init__(self, write):
        everything, own = NamePattern(".*"), NamePattern(OWN)
        owner = User(OWNER, (hash_of(OWNER),), "operator", everything, everything, everything)
        stranger = User(STRANGER, (hash_of(STRANGER),), "observer", own, NamePattern(write), own)
        self._users = Users({each.name: each for each in (owner, stranger)})

    def users_file(self):
        """As in `SecurityOptions`; the users never change."""
        return SimpleNamespace(users=self._users, changed=lambda: False)

    def credentials(self):
        """As in `SecurityOptions`: no TLS."""


def drawn(chance):
    """The security of a world; None in most: any caller may do anything."""
    return Security(chance.choice((OWN, ".*"))) if chance.random() < _SHARE else None


def metadata(user):
    """The metadata of a user's calls: its name as its token; "": none."""
    return (("authorization", f"Bearer {user}"),) if user else ()
