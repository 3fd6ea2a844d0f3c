"""The sweeper: recovers stalled tasks, ends waits that are over, looks after sleeping workers."""
