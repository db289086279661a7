"""Sessions (rules S): leases, holders, accepts, outcomes, timeouts, operators."""
