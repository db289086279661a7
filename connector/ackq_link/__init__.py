"""Links: move messages between queues of remote brokers and of ackq, by the public protocol.

A link is a client of the edge (the local ackq broker) and keeps no state of its own: the edge keeps
what an inbound link must remember. An inbound link acknowledges at the remote broker what the edge
permits; an outbound link accepts at the edge what the remote broker confirms. Rules L2, L3, L8, L9,
L12 to L20, L22 and L23.
"""
