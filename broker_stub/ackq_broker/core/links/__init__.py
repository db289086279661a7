"""Links (L): messages of a remote broker's queue, stored once and acknowledged once settled."""
