"""Traces a message by its id through what the journal still has (Q9); also beside a broker.

`search` finds the id in the blocks of the files, `replay` applies the records again and notes what
happens to what was found, `story` says it in sentences.

Invariant: nothing is locked, changed or written, and what the journal has no more is said.
"""
