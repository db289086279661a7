"""The source (rules K1, K2, K5, K6): offsets, leases, partitions, fetches; and batch browse."""
