"""Links: the streams of their processes, and what their operators do (L1-L20, L25-L27)."""
