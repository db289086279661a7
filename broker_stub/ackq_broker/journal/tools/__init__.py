"""Operators' tools on a journal that no broker has open: verify, repair, dump, new history."""
