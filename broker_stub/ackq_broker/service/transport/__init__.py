"""Shared by all streams and calls: buffers of a stream, message fields on the wire."""
