"""Links: the streams of their processes, and their operators' calls (L1-L20, L25-L28)."""
