"""Links: the streams of their processes, and what their operators do (L1-L27)."""
