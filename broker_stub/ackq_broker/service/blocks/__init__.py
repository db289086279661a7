"""Message blocks on their way through the broker: validated, coalesced, routed, framed."""
