"""Diagnosis commands: gather facts, and print the findings of `ackq.diagnosis` (Q9)."""
