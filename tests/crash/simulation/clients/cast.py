"""The cast of a world: a few queues and clients, chosen by the seed."""

from functools import partial

from ackq.v1 import admin_pb2
from tests.crash.simulation.clients.channel import Consumer
from tests.crash.simulation.clients.client import Client
from tests.crash.simulation.clients.operator import Importer, Operator, Watcher
from tests.crash.simulation.clients.publisher import Publisher
from tests.crash.simulation.clients.session import Query
from tests.crash.simulation.clients.sink import Writer
from tests.crash.simulation.clients.stranger import Stranger
from tests.crash.simulation.clients.transactional import TransactionalPublisher
from tests.crash.simulation.oracle.history import QueueRules
from tests.crash.simulation.oracle.ledger import Oracle
from tests.crash.simulation.users import OWN

_OUTCOMES = (
    {"accepted": 6, "failed": 1, "rejected": 1, "released": 2},
    {"accepted": 2, "failed": 5, "rejected": 1, "released": 2},
)
_FANOUT = 2
_RETAIN_MS = 24 * 3_600_000
# Share of second publishers that are a copy of the first.
_COPIES = 1 / 2
# Share of worlds with a crowd of publishers, whose messages share blocks (P4).
_CROWDS = 1 / 4
_CROWD = 3
# Share of worlds where a query is alone with an operator, who rewinds its session and purges.
_REWOUND = 1 / 5
# Share of worlds where the queue `plain` retains what consumers accept, and is rewound and purged.
_RETAINING = 1 / 8
# How often such a query is refreshed.
_REFRESHES = 4
# Share of the other worlds where a query has a longer life, alone or with one other client: an
# operator who settles its leases, a consumer of its queue, or nobody while batches have no rows.
_FOCUSED = 1 / 8
_FOCI = {"settled": ["query", "operator"], "shared": ["consumer", "query"], "empty": ["query"]}


class _Late(Consumer):
    """A consumer that leaves the first messages to a query."""

    windows = (1, 2)

    async def work(self):
        await self.pause(20.0)
        await super().work()


class Cast:
    """The clients of one world.

    Attributes:
        oracle: The oracle that they report to.
        clients: Each has a `name`, and `run` until its work is done or the world closes.
    """

    def __init__(self, world):
        self._world = world
        self._rng = world.random("cast")
        self._fans = False
        self._prepare()
        self.clients = []
        self._query = None
        self._focus = ""
        self._choose()
        if world.users is not None:
            self._add_stranger()

    def _prepare(self):
        """Draws the queues, and creates the oracle."""
        rng = self._rng
        delay_ms = rng.choice((0, 0, 200))
        self._retaining = self._world.random("retaining").random() < _RETAINING
        self._queues = [
            QueueRules("dead"),
            QueueRules("orders", dead="dead", limit=rng.choice((0, 1, 2)), delay_ms=delay_ms),
            QueueRules(
                "plain",
                max_length=rng.choice((0, 0, 12)),
                retains=self._retaining,
                gives_way=self._world.retention_ends,
            ),
            QueueRules("out"),
            QueueRules("memory", durable=False),
            QueueRules("loose", loose=True),
            QueueRules("scratch"),
            *self._queues_of_stranger(),
        ]
        self._fans = rng.random() < 0.3
        self.oracle = Oracle(self._world, self._queues)

    def _choose(self):
        rng, world = self._rng, self._world
        routes = [("", "orders", ("orders",)), ("", "plain", ("plain",))]
        if self._fans:
            routes.append(("fan", "any", ("orders", "plain")))
        extra = rng.choice(("", "", "memory", "loose", "scratch"))
        if extra:
            routes.append(("", extra, (extra,)))
        ttl_ms = rng.choice((0, 800, 60_000))
        kinds = ["consumer", "query", "writer", "transactions", "operator"]
        chosen = [kind for kind in kinds if rng.random() < (0.7 if kind == "query" else 0.55)]
        if rng.random() < (0.2 if world.users is None else 0.5):
            # A query takes many steps: now and then it runs without other clients.
            chosen = ["query", rng.choice(kinds[2:])]
        chosen = self._choose_long_lived() or chosen
        if self._focus:
            routes, ttl_ms = routes[1:2], 0
        # The rows of a batch are the same only if they are persistent (K2).
        transient = 0.0 if "query" in chosen else rng.choice((0.0, 0.2))
        kind = partial(Publisher, ttl_ms=ttl_ms, transient=transient)
        publishers = [
            self._add(kind, f"p{number}", routes, rng.choice((6, 12, 20)))
            for number in range(rng.choice((1, 1, 2)))
        ]
        # From a generator of its own, so that the worlds of all other seeds stay as they were.
        if len(publishers) > 1 and world.random("copies").random() < _COPIES:
            publishers[1].copy_of(publishers[0])
        self._add_crowd(routes[:1])
        for kind in chosen:
            getattr(self, f"_add_{kind}")()
        self._add(Watcher, "watcher")
        if rng.random() < 0.15:
            self._add_importer()
        if extra == "loose":
            self._add(Consumer, "taker", ["loose"], _OUTCOMES[0], no_ack=True)

    def _choose_long_lived(self):
        """Kinds of clients for a world that lasts longer than faults come; empty for another."""
        world = self._world
        self._rewound = world.random("rewound").random() < _REWOUND
        if self._rewound or self._retaining:
            # Messages are accepted, rewound, and read again.
            world.seconds *= 3
            return ["query" if self._rewound else "consumer", "operator"]
        focus = world.random("focus")
        if focus.random() >= _FOCUSED:
            return []
        self._focus = focus.choice(list(_FOCI))
        world.seconds *= 10
        return _FOCI[self._focus]

    def _add_crowd(self, routes):
        """Adds some publishers of single messages, from a generator of their own as well."""
        if self._world.random("crowd").random() < _CROWDS:
            for number in range(_CROWD):
                self._add(Publisher, f"s{number}", routes, 16, transient=0.0, singly=True)

    def _queues_of_stranger(self):
        return [] if self._world.users is None else [QueueRules(OWN)]

    def _add(self, kind, name, *args, **options):
        """Makes and adds a client; returns it."""
        self.clients.append(kind(self._world, self.oracle, name, *args, **options))
        return self.clients[-1]

    def _add_consumer(self):
        for number in range(self._rng.choice((1, 2))):
            outcomes = self._rng.choice(_OUTCOMES)
            queues = self._rng.choice((["orders"], ["orders", "plain"], ["plain", "dead"]))
            queues = ["plain"] if self._retaining or self._focus else queues
            kind = _Late if self._focus else Consumer
            self._add(kind, f"c{number}", queues, outcomes)

    def _add_query(self):
        rng = self._rng
        target = "" if self._focus else rng.choice(("out", ""))
        # A sink's content cannot be compared with a batch that has holes: that is at least once.
        timeout_ms = 0 if target or self._rewound else rng.choice((0, 100, 300))
        timeout_ms = {"": timeout_ms, "shared": 300}.get(self._focus, 0)
        self._query = self._add(
            Query,
            "query",
            "session",
            "plain" if self._focus else rng.choice(("orders", "orders", "plain")),
            target,
            rng.choice((1, 2, 5)),
            settles=not timeout_ms and rng.random() < (0.3 if self._world.users is None else 0.8),
            timeout_ms=timeout_ms,
        )
        if self._rewound:
            self._query.mortality = 0.2
            self._query.alone = True
            self._query.limit = self._world.random("limit").choice((2, 5, 20))
            self._query.refreshes = _REFRESHES if self._query.retain_ms else 0
        if self._focus == "empty":
            # Messages are left for a batch that was without rows, should it be planned again.
            self._query.empty, self._query.limit = 0.5, 1
        elif self._focus == "shared":
            self._query.naps, self._query.limit = 0.4, 5

    def _add_writer(self):
        self._add(Writer, "job", "out", self._rng.choice((2, 4)))

    def _add_transactions(self):
        queues = self._rng.choice((["orders"], ["orders", "plain"]))
        count = self._rng.choice((2, 4, 6))
        self._add(TransactionalPublisher, "tx", queues, count)

    def _add_operator(self):
        tasks = ["purge", "redrive", "redrive", "delete", "release", "drop"]
        some = self._rng.sample(tasks, 3)
        if self._query is not None and not self._query.target:
            some = [*some, "settle", "settle", "settle"]
        if self._rewound:
            some = ["rewind", "rewind"]
        elif self._focus:
            some = ["settle"]
        elif self._query is not None:
            some = [*some, "rewind", "rewind"]
        elif self._retaining:
            some = ["rewind_queue", "rewind_queue", "purge"]
        count = self._rng.choice((3, 6))
        names = ["plain"] if self._retaining else ["orders", "plain"]
        if self._query is not None and self._query.retain_ms:
            # A purge of what its session retains comes late: after two of its accepts.
            some, names, count = [*some, "purge", "purge"], [self._query.queue], count + 4
        elif self._retaining:
            count += 4
        declared = {each.name: self._declaration(each) for each in self._queues}
        self._add(Operator, "op", some, names, count, declared, self._query)

    def _add_importer(self):
        make = admin_pb2.DeclareQueueRequest
        dead = admin_pb2.QueueProperties(durable=True)
        orders = admin_pb2.QueueProperties(
            durable=True, max_length=50, dead_letter_queue="imported-dead"
        )
        queues = [
            make(queue="imported-dead", properties=dead),
            make(queue="imported", properties=orders),
        ]
        exchange = admin_pb2.DeclareExchangeRequest(exchange="in", type=_FANOUT, durable=True)
        bindings = [admin_pb2.BindRequest(exchange="in", queue="imported", binding_key="")]
        self._add(Importer, "importer", queues, exchange, bindings)

    def _add_stranger(self):
        self._add(Stranger, "stranger", self.clients)

    def keep(self, names):
        """Keeps only the clients with these names."""
        self.clients = [each for each in self.clients if each.name in names]

    def done(self):
        """Whether every client has finished its work, or has none."""
        return all(client.finished for client in self.clients)

    # --- topology ---

    async def declare(self):
        """Declares the queues, and retries through faults of the broker."""
        client = Client(self._world, self.oracle, "declare")
        for each in self._queues:
            await client.call("DeclareQueue", self._declaration(each), tries=1000)
        if self._fans:
            fan = admin_pb2.DeclareExchangeRequest(exchange="fan", type=_FANOUT, durable=True)
            await client.call("DeclareExchange", fan, tries=1000)
            for queue in ("orders", "plain"):
                bind = admin_pb2.BindRequest(exchange="fan", queue=queue, binding_key="")
                await client.call("Bind", bind, tries=1000)

    def _declaration(self, rules):
        properties = admin_pb2.QueueProperties(
            durable=rules.durable,
            max_length=rules.max_length,
            dead_letter_queue=rules.dead,
            delivery_limit=rules.limit,
            redelivery_delay_ms=rules.delay_ms,
            redelivery_delay_max_ms=2000 if rules.delay_ms else 0,
            retain_ms=_RETAIN_MS if rules.retains else 0,
        )
        return admin_pb2.DeclareQueueRequest(queue=rules.name, properties=properties)
