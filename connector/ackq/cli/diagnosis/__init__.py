"""Commands that say what is wrong, and what to do: they gather facts for `ackq.diagnosis` (Q9)."""
