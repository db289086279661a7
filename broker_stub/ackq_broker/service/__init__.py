"""gRPC adapters: decode, call the core, journal, wait for the disk, encode.

From the top: `server` is the process; `admin`, `publishing`, `consuming` and `sessions` serve the
RPCs of the proto files of those names, the last three independent of each other; `blocks` prepares
what is published and builds what is delivered; `transport` bridges to gRPC and has the buffers and
fields of streams; `engine` decides commands and journals their records.

Invariant I1: nothing leaves the broker before the journal prefix it depends on is on disk.
"""
