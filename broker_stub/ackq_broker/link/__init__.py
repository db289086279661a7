"""Links: move messages between queues of other brokers and this one's, by the public protocol.

A link is a client of the edge, the ackq broker beside it, and keeps nothing of its own: what it has
not proven to be stored on one side it has not settled on the other. Rules L8, L9, L12, L13, L17,
L19, L20 and L22.
"""
