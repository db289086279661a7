"""Links (L): messages of another broker's queue, each stored once and acknowledged once settled."""
