"""Sessions (rules S): a session's calls, its liveness stream and the outcomes of its lease."""
