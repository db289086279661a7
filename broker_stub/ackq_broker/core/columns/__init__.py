"""Columns of positions and tags, independent of queues: bitmaps, runs, counts."""
