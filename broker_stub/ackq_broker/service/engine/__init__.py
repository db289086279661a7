"""The engine: decides commands, journals their records, releases answers that are on disk (I1)."""
