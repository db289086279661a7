"""Memory of a link and its local broker while they pass a large backlog of RabbitMQ.

Invariant: the local broker's memory of a message ends a minute after its acknowledgement is proven
(L10), and a link holds its window (L19), so neither grows with the backlog: from two of those
minutes on, memory is compared with its peak before.
"""

import time

import cpu
import psutil
from harness import Figures

from ackq import limits

LIMIT_S = 6 * 3600.0
# The memory of a minute's messages depends on the rate, which varies.
_MOST_GROWTH = 1.25
_SETTLED_IN_S = 2.0 * limits.LINK_ACK_GRACE_S
_SAMPLE_S = 1.0
_SAY_S = 15.0
KINDS = {"lazy": {"x-queue-mode": "lazy"}, "quorum": {"x-queue-type": "quorum"}}


def measure(admin, here, count, link, title):
    """Samples memory until a backlog is settled, and RabbitMQ's queue is empty.

    Args:
        admin: Of the local broker.
        here: The local broker's queue.
        count: Number of messages in the backlog.
        link: The link's process id.
        title: Title of the result.
    """
    found = {"edge": [], "link": []}
    times = []
    began = said = time.monotonic()
    processes = {"edge": psutil.Process(cpu.SERVERS[cpu.ACKQ]), "link": psutil.Process(link)}
    accepted = 0
    while accepted < count:
        accepted = admin.queue(here).accepted
        now = time.monotonic()
        assert now - began < LIMIT_S, f"{accepted:,} of {count:,} in time"
        times.append(now - began)
        for name, process in processes.items():
            found[name].append(process.memory_info().rss / 2**20)
        if now - said >= _SAY_S or accepted == count:
            said = now
            print(
                f"{accepted:,} of {count:,} settled after {now - began:.0f} s; MiB of"
                f" edge {found['edge'][-1]:.0f}, link {found['link'][-1]:.0f}",
                flush=True,
            )
        time.sleep(_SAMPLE_S)
    figures = Figures(f"{title}, {count / times[-1]:,.0f}/s", "MiB")
    for name, sizes in found.items():
        figures.add(
            {f"{name}, first": sizes[0], f"{name}, most": max(sizes), f"{name}, last": sizes[-1]}
        )
        early = [size for at, size in zip(times, sizes, strict=True) if at < _SETTLED_IN_S]
        late = sizes[len(early) :]
        if late:
            figures.add({f"{name}, most after {_SETTLED_IN_S:.0f} s": max(late)})
            figures.passed &= max(late) <= _MOST_GROWTH * max(early)
    return figures
