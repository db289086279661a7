"""Sessions (rules S): their RPCs, liveness of their holders, outcomes of their leases."""
