"""A real broker process with TLS and users, and the material of its clients."""

import contextlib
import hashlib
import secrets

import ackq_broker
from ackq.client import Admin, Security
from ackq.errors import UnauthenticatedError
from tests.fakes.certificates import Authority

ALL = {"configure": ".*", "write": ".*", "read": ".*"}


class Secured:
    """A broker with TLS and users.

    Attributes:
        broker: The process.
        authority: Issues its certificate, and its clients' if it requires them.
        folder: Folder of the tokens and the users file.
    """

    def __init__(self, folder, authority):
        self.folder = folder
        self.authority = authority
        self.users = folder / "users.toml"
        self.broker = None
        self._tables = {}

    @property
    def endpoint(self):
        """The endpoint by the host name in the certificate."""
        assert self.broker is not None
        return f"localhost:{self.broker.endpoint.rpartition(':')[2]}"

    def add(self, user, role="operator", *, token="", also="", **permissions):
        """Adds a user to the users file, or changes one; returns the path of its token.

        Args:
            user: Its name; an existing user is changed.
            role: Its role.
            token: Its token; a new one, if empty.
            also: Another token, which is being replaced.
            **permissions: Its permissions; all, if none are given.
        """
        token = token or f"ackq_{secrets.token_urlsafe(32)}"
        hashes = [hashlib.sha256(each.encode()).hexdigest() for each in (token, also) if each]
        lines = [f"[users.{user}]", f"tokens = {hashes}", f'role = "{role}"']
        lines += [f"{name} = '{text}'" for name, text in (permissions or ALL).items()]
        self._tables[user] = "\n".join(lines)
        new = self.users.with_suffix(".new")
        new.write_text("\n\n".join(self._tables.values()) + "\n")
        new.chmod(0o600)
        new.replace(self.users)
        file = self.folder / f"{user}.token"
        renewed = file.with_suffix(".renewed")
        renewed.touch(0o600)
        renewed.write_text(token + "\n")
        renewed.replace(file)
        return str(file)

    def knows(self, token):
        """Whether the broker accepts a token now; it reads a changed users file soon."""
        security = Security(tls=True, ca=self.authority.ca, token=token)
        try:
            Admin(self.endpoint, security=security).info()
        except UnauthenticatedError:
            return False
        return True

    def security(self, user="all"):
        """The `Security` that a user connects with."""
        token_file = self.folder / f"{user}.token"
        return Security(tls=True, ca=self.authority.ca, token_file=str(token_file))


@contextlib.contextmanager
def secured_broker(folder, *, mutual=False, token="", http=False):
    """A broker with a certificate and the user `all`, who has all permissions.

    Args:
        folder: Folder for its data, certificates and users.
        mutual: It asks its clients for a certificate of the same authority.
        token: The user's token.
        http: It serves HTTP, too.
    """
    authority = Authority(folder / "authority")
    secured = Secured(folder, authority)
    secured.add("all", token=token)
    served = authority.issue("localhost", "127.0.0.1", to_day=60)
    given = {"TLS_CERT": served.cert, "TLS_KEY": served.key, "USERS": str(secured.users)}
    if mutual:
        given["TLS_CLIENT_CA"] = authority.ca
    env = {f"ACKQ_BROKER_{name}": text for name, text in given.items()}
    with ackq_broker.embedded(folder / "data", env=env, http=http) as broker:
        secured.broker = broker
        yield secured
