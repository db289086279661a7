"""Bytes on the wire and on disk: frames (`frame`), columns and their Arrow types.

(`columns`), blocks (`block`).

Pure functions over bytes and Arrow buffers; no I/O, no gRPC.
"""
