"""Reads a journal: groups of the log, blocks, snapshots."""
