"""Changes of a world with links: the machine below link processes, and the link memory.

A real local broker remembers acknowledged messages for a minute and doubtful ones for a day. In a
world it is two seconds, and the remote broker's delays are shorter (`clients.link_cast`). Where a
fault sets the clock both stay at their real values, because a clock step may be believed.
"""

from types import SimpleNamespace

from ackq.client.connection import attempts, duplex
from ackq.limits import MIN_UNSYNCED_BYTES
from ackq_broker.core.state import link
from ackq_link import inbound, process, transfer
from ackq_link.edge import link as async_link
from ackq_link.edge import state, stream
from tests.crash.simulation.clients.link_stream import SimulatedLinkStream, WatchedLink, in_loop

MEMORY_S = 2
_STANDSTILLS = 0.2


def stands_still(world):
    """Whether the disk of this world stalls now and then while the link is cut off."""
    # From a generator of its own, so that the worlds of all other seeds stay as they were.
    return world.random("standstill").random() < _STANDSTILLS


def patches(world):
    """The limits by name, and (module, name, value) replacements that links see of the machine."""
    chance = world.random("link machine")
    # So small that streams wait for a slow disk, as they do for 16 MiB on a real one.
    least = chance.choice((1_000, 4_000, MIN_UNSYNCED_BYTES))
    if stands_still(world):
        least = 500
    machine_limits = {"MIN_UNSYNCED_BYTES": least, "MAX_UNSYNCED_BYTES": 4 * least}
    short = ()
    if not world.clock_jumps:
        machine_limits |= {"LINK_ACK_GRACE_S": MEMORY_S, "LINK_DOUBT_S": MEMORY_S}
        short = ((link, "_HOUR_US", 500_000),)
    secrets = SimpleNamespace(token_bytes=chance.randbytes)
    clock = SimpleNamespace(monotonic=lambda: world.kernel.now_s)
    return machine_limits, (
        *short,
        (async_link, "LinkStream", SimulatedLinkStream),
        (async_link, "in_thread", in_loop),
        (async_link, "secrets", secrets),
        (attempts, "secrets", secrets),
        (attempts, "time", SimpleNamespace(time_ns=lambda: int(world.kernel.now_s * 1e9))),
        (async_link, "socket", SimpleNamespace(gethostname=lambda: "machine")),
        (async_link, "os", SimpleNamespace(getpid=lambda: 2)),
        (duplex, "grpc_channel", lambda *_: None),
        (stream, "time", clock),
        (state, "_HEARTBEAT_S", chance.choice((0.1, 0.4, 2.0))),
        (transfer, "time", clock),
        (inbound, "AsyncLink", WatchedLink),
        (process, "random", chance),
    )
