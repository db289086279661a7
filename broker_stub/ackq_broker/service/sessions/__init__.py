"""Sessions (rules S): their calls, liveness of their holders, outcomes of their leases."""
