"""Diagnosis: from gathered facts to sentences for who has to act; pure, without I/O or clock (Q9).

`queue_state` says why a queue stands still, `installation` what is wrong with a machine, and
`message_path` where a message went.
"""
