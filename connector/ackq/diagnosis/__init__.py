"""Diagnosis: turns gathered facts into sentences for an operator; pure, no I/O or clock (Q9).

`queue_state` explains why a queue stands still, `link_state` what holds a link up, `machine_state`
and `connection_state` find problems of a machine and on the path to a broker, and `message_path`
describes where a message is.
"""
