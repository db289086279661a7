"""Shared by all RPCs: the bridge to gRPC, buffers of a stream, message fields on the wire."""
