"""Reading a journal: scans of segments, blocks, snapshots."""
