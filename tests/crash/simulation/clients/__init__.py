"""Virtual clients: they speak the protocol's messages, each by a seeded generator of its own."""
