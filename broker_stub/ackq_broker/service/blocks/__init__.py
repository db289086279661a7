"""Blocks on their way through the broker: validated, coalesced, split by route, framed."""
