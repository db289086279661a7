"""Columns over positions and tags, with no knowledge of queues: bitmaps, runs, counts."""
