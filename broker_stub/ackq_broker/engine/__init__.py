"""The engine: decides commands, journals their records, releases answers once on disk (I1)."""
