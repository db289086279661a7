"""gRPC adapters: decode, call the core, journal, wait for the disk, encode.

From the top: `admin`, `links`, `publishing`, `consuming` and `sessions` serve the RPCs of the proto
files of those names, the last three independent of each other; `holdings` says who keeps messages
of a queue; `blocks` prepares published blocks and builds delivered frames; `transport` bridges to
gRPC and has what all streams share.

Invariant I1: nothing leaves the broker before the journal prefix it depends on is on disk.
"""
