"""Writing a journal: group commit, segments, transient messages, compaction."""
