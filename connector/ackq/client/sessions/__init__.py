"""Sessions (rules S): a session's calls, its liveness stream, the outcomes of its lease."""
