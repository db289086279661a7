"""Bytes on the wire and on disk: frames, blocks, columns and their Arrow types.

Pure functions over bytes and Arrow buffers; no I/O, no gRPC.
"""
