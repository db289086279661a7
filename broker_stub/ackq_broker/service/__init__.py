"""gRPC adapters: decode, call the core, journal, wait for the disk, encode.

Invariant I1: nothing leaves the broker before the journal prefix it depends on is on disk.
"""
