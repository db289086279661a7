"""Every limit of ackq with its default, and the relations that must hold between them (I6).

Sizes end in `_BYTES`, durations in `_MS` or `_S`. Measured choices quote the measurement.
"""

from __future__ import annotations

from typing import Final

# Default address on which a broker listens and to which its clients connect.
DEFAULT_ENDPOINT: Final = "127.0.0.1:5775"

KIB: Final = 1024
MIB: Final = 1024 * KIB

# A wait without an end is made of waits of this length: when a signal, such as Ctrl-C, comes in the
# moment in which the main thread begins to wait, Python notices it only when that wait ends.
SIGNAL_WAIT_S: Final = 1.0

# --- frames and messages ---
# Published with bodies of 1 KiB, synced: frames of 1 MiB 370,000 rows/s, 2 MiB 520,000, 4 MiB
# 580,000; but Spark's sink and source are no faster with 4 MiB than with 2.
FRAME_TARGET_BYTES: Final = 2 * MIB
# Rows per frame, so that tiny messages do not make frames of a million rows.
FRAME_TARGET_ROWS: Final = 10_000
MAX_MESSAGE_BYTES: Final = 64 * MIB
MAX_FRAME_BYTES: Final = 72 * MIB
MAX_FRAME_ROWS: Final = 1_000_000
MAX_HEADER_BYTES: Final = 1 * MIB
MAX_NAME_BYTES: Final = 255
# Prefix of the names of sessions whose query gave them none.
ANONYMOUS_PREFIX: Final = "anonymous-"
MAX_ROUTING_KEY_BYTES: Final = 255
MAX_DISTINCT_ROUTES_PER_FRAME: Final = 65_536
# A request that is not a data frame and has no outcomes: 100,000 stages of a commit take 3 MB.
MAX_REQUEST_BYTES: Final = 4 * MIB
# Fields of a request, including fields of nested messages; a field takes up to 150 bytes in memory.
# 65,536 groups of outcomes have at most 5 fields each, 100,000 stages 4.
MAX_REQUEST_FIELDS: Final = 500_000
# Words in a key of a topic exchange. Each binding with a `#` may match from each of them on.
MAX_TOPIC_WORDS: Final = 21

# --- publishers ---
PUBLISH_WINDOW_MESSAGES: Final = 100_000
PUBLISH_WINDOW_BYTES: Final = 64 * MIB
PUBLISH_ACK_TIMEOUT_MS: Final = 2_000
# How long a publish may wait for others to share its frame: with nothing in flight it is sent at
# once, else when the frames in flight are answered, and at the latest after PUBLISH_GATHER_MS.
PUBLISH_LINGER_MS: Final = 0
PUBLISH_GATHER_MS: Final = 20
CONFIRM_DELAY_MS: Final = 1_000
PUBLISHER_RETENTION_S: Final = 7 * 24 * 3600
# Messages in one transaction. The broker holds 300 bytes for a message that has its own frame.
MAX_TRANSACTION_MESSAGES: Final = 1_000_000

# --- stages ---
STAGE_WINDOW_BYTES: Final = 32 * MIB
STAGE_RETENTION_S: Final = 7 * 24 * 3600
# A write without a `txnAppId` is a writer that cannot be run again (K3): its stages are useless
# once it is dead, and the record of its commit once its client has stopped retrying the commit.
SINGLE_STAGE_RETENTION_S: Final = 24 * 3600
SINGLE_COMMIT_RETENTION_S: Final = 3600

# --- sessions ---
HEARTBEAT_MS: Final = 15_000
HEARTBEAT_SEND_MS: Final = 5_000
# How often the broker's event loop notes whether it is late; while it is, its clients do not count
# as silent.
UPTIME_TICK_MS: Final = 1_000
HOLDER_CUT_GRACE_MS: Final = 2_000
UNPROVEN_RETENTION_S: Final = 24 * 3600
# A session without its own name that holds nothing is finished this long after it was last heard.
FINISHED_SESSION_S: Final = 24 * 3600
REPLAY_RETENTION_S: Final = 7 * 24 * 3600
# Accepted leases that a session retains (S13): a batch a second for 27 hours, 100 MB of memory.
MAX_RETAINED_BATCHES: Final = 100_000
ADVANCE_WAIT_MS: Final = 100
MAX_ADVANCE_WAIT_MS: Final = 10_000
MAX_LEASE_CHUNKS: Final = 4_096
LEASE_CHUNK_TARGET_BYTES: Final = 1 * MIB
DEFAULT_MAX_MESSAGES_PER_TRIGGER: Final = 1_000_000
DEFAULT_MAX_BYTES_PER_TRIGGER: Final = 256 * MIB
# Outcomes that one task may stage (S6). A group is the messages that share an outcome, reason and
# delay: the broker keeps about 1 KB for each group.
MAX_OUTCOME_STAGE_TAGS: Final = 4_000_000
MAX_OUTCOME_STAGE_GROUPS: Final = 65_536
MAX_OUTCOME_STAGE_BYTES: Final = 48 * MIB
# Ranges of tags in one settlement by an operator (S8).
MAX_SETTLE_RANGES: Final = 100_000

# --- channels ---
# Maximum number of deliveries without a transport ack (C11).
CHANNEL_WINDOW_MESSAGES: Final = 10_000
MAX_CHANNEL_WINDOW_MESSAGES: Final = 1_000_000
# A client's transport ack is due at this part of the window, or after this time.
TRANSPORT_ACK_AT_PERCENT: Final = 60
TRANSPORT_ACK_DELAY_MS: Final = 1_000
# After this time without a transport ack the oldest frame is sent again; the wait doubles up to
# RETRANSMIT_MAX_MS.
RETRANSMIT_MS: Final = 2_000
RETRANSMIT_MAX_MS: Final = 60_000
# How long a channel that was cut waits for its client.
CHANNEL_RESUME_MS: Final = 2_000
MAX_CONSUMERS_PER_CHANNEL: Final = 1_024
# Runs of tags that one settlement may name.
MAX_SETTLE_RUNS: Final = 4_096
# Default prefetch of a client's consumer (C8).
CONSUMER_PREFETCH_MESSAGES: Final = 1_000

# --- links ---
MAX_LINKS: Final = 1_000
# Processes of outbound links that report their state; 6 KB each.
MAX_OUTBOUND_REPORTS: Final = 1_000
# The description of a link's source.
MAX_LINK_SOURCE_BYTES: Final = 1_024
# The reason that an outbound link is held up, in the words of the remote broker.
MAX_LINK_REASON_BYTES: Final = 1_000
# Messages that a link remembers: held messages, and messages whose acknowledgement may be lost; 50
# bytes each.
MAX_LINK_ENTRIES: Final = 4_000_000
# A proven acknowledgement is remembered for LINK_ACK_GRACE_S: a RabbitMQ node that dies takes back
# acknowledgements that it had not synced. One in doubt is remembered for LINK_DOUBT_S at least
# (L10).
LINK_ACK_GRACE_S: Final = 60
LINK_DOUBT_S: Final = 24 * 3600
# JetStream answers acknowledgements and publishes; without an answer for this time it is a cut.
LINK_ANSWER_S: Final = 30

# --- numbers ---
# The largest number that a client may give what is counted: publishes, deliveries, batches, rows.
# Sums of a few stay within a signed 64-bit integer.
LARGEST_NUMBER: Final = 1 << 62

# --- time ---
# A publish time, microseconds since the epoch: 0001-01-03 to 9999-12-30, UTC. Arrow, Spark and
# datetime hold the years 1 to 9999; a day or two less at each end can be shown in every time zone.
MIN_PUBLISHED_AT_US: Final = -62_135_424_000_000_000
MAX_PUBLISHED_AT_US: Final = 253_402_214_399_999_999
# A time to live or a delay. A hundred years: any reader can represent such an expiry time.
MAX_TTL_MS: Final = 100 * 365 * 24 * 3600 * 1000
# After the wall clock jumped forward by over CLOCK_JUMP_MS, expiry waits for CLOCK_JUMP_WAIT_MS
# (Q8).
CLOCK_JUMP_MS: Final = 60_000
CLOCK_JUMP_WAIT_MS: Final = 600_000

# --- client ---
CONNECT_TIMEOUT_MS: Final = 10_000
REQUEST_TIMEOUT_MS: Final = 30_000
# A client pings its broker when a call is open and nothing came for KEEPALIVE_MS; without any bytes
# for KEEPALIVE_TIMEOUT_MS, or the ping's own answer for twice that, the connection is dead.
KEEPALIVE_MS: Final = 20_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000
RETRY_INITIAL_MS: Final = 100
RETRY_MAX_MS: Final = 5_000
# How long a reader keeps trying an unreachable broker before its query fails.
RETRY_TOTAL_MS: Final = 60_000

# --- broker ---
# Share of a common limit that one user may use, unless its own limits say otherwise: the rest is
# left for the others.
USER_SHARE_PERCENT: Final = 50
MAX_QUEUES: Final = 100_000
MAX_EXCHANGES: Final = 10_000
MAX_BINDINGS: Final = 1_000_000
# Steps, of about 0.4 us, to match one topic; and steps of a block, which is decided in one piece.
MAX_TOPIC_STEPS: Final = 20_000
MAX_BLOCK_STEPS: Final = 200_000
# Queues that one block goes to; a queue counts again for each further binding key.
MAX_BLOCK_QUEUES: Final = 20_000
ROUTE_CACHE_BYTES: Final = 64 * MIB
MAX_SESSIONS: Final = 100_000
MAX_PUBLISHERS: Final = 1_000_000
# Measured at the limit: 86 MiB of memory and 29 MiB of a snapshot; 685 and 271 if each writer has
# 32 remembered runs.
MAX_WRITERS: Final = 100_000
MAX_STREAMS: Final = 10_000
# HTTP connections of browsers, monitoring and probes; gRPC has the other descriptors. One address
# may use only a part of them, so that it cannot keep out the probes of another.
MAX_HTTP_CONNECTIONS: Final = 100
MAX_HTTP_CONNECTIONS_EACH: Final = 50
# A call whose first request does not come within this time is ended.
FIRST_REQUEST_MS: Final = 15_000
# While memory is short, a stream that holds bytes and makes no progress for this time is ended.
STALLED_MS: Final = 10_000
# The lowest memory limit of a broker; a process without messages uses a third of it.
MIN_MEMORY_BYTES: Final = 512 * MIB
MAX_GROUP_BYTES: Final = 32 * MIB
SEGMENT_BYTES: Final = 256 * MIB
MIN_SEGMENT_BYTES: Final = 16 * MIB
SNAPSHOT_EVERY_BYTES: Final = 256 * MIB
# The time of a start grows with the number of small records, not their bytes: 0.03 to 0.1 ms each.
# A large state is written less often, so that snapshots write at most SNAPSHOT_RECORD_BYTES a
# record.
SNAPSHOT_EVERY_RECORDS: Final = 50_000
SNAPSHOT_RECORD_BYTES: Final = 1024
# Serves draining work (settle, accept, snapshot, compaction) when publishes are refused.
DISK_RESERVE_BYTES: Final = SNAPSHOT_EVERY_BYTES + 2 * SEGMENT_BYTES
# Bytes that may wait for the disk before publishers are blocked: as many as the disk takes in 2 s,
# within these limits.
MIN_UNSYNCED_BYTES: Final = 16 * MIB
MAX_UNSYNCED_BYTES: Final = 256 * MIB


def user_share(most: int) -> int:
    """The part of a limit for all users together that one user may use (A5)."""
    return most * USER_SHARE_PERCENT // 100


assert FRAME_TARGET_BYTES <= MAX_FRAME_BYTES
assert MAX_MESSAGE_BYTES + MAX_HEADER_BYTES < MAX_FRAME_BYTES
assert MAX_REQUEST_BYTES < MAX_FRAME_BYTES
assert 5 * MAX_OUTCOME_STAGE_GROUPS < MAX_REQUEST_FIELDS
assert 10 * FRAME_TARGET_ROWS < MAX_REQUEST_FIELDS
assert MAX_GROUP_BYTES <= SEGMENT_BYTES
assert MIN_UNSYNCED_BYTES < 2 * MAX_GROUP_BYTES < MAX_UNSYNCED_BYTES
assert MAX_FRAME_BYTES <= SEGMENT_BYTES
assert HEARTBEAT_SEND_MS * 2 < HEARTBEAT_MS
assert UPTIME_TICK_MS * 2 <= HOLDER_CUT_GRACE_MS < HEARTBEAT_MS
assert CHANNEL_RESUME_MS < HEARTBEAT_MS
assert RETRY_TOTAL_MS < 1000 * SINGLE_COMMIT_RETENTION_S
assert TRANSPORT_ACK_DELAY_MS < RETRANSMIT_MS < RETRANSMIT_MAX_MS
assert 0 < TRANSPORT_ACK_AT_PERCENT < 100  # noqa: PLR2004
assert CONSUMER_PREFETCH_MESSAGES <= CHANNEL_WINDOW_MESSAGES <= MAX_CHANNEL_WINDOW_MESSAGES
assert ADVANCE_WAIT_MS <= MAX_ADVANCE_WAIT_MS < REQUEST_TIMEOUT_MS
assert PUBLISH_LINGER_MS <= PUBLISH_GATHER_MS < PUBLISH_ACK_TIMEOUT_MS
assert DEFAULT_MAX_BYTES_PER_TRIGGER >= FRAME_TARGET_BYTES
assert 8 * MAX_OUTCOME_STAGE_TAGS < MAX_OUTCOME_STAGE_BYTES < MAX_FRAME_BYTES
