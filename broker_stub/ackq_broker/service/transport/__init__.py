"""Parts shared by all RPCs: the bridge to gRPC, stream buffers, message fields on the wire."""
