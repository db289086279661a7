"""Virtual clients: they speak the protocol's messages, each with its own seeded generator."""
