"""Links: move messages between queues of other brokers and this one's, by the public protocol.

A link is a client of the edge, the ackq broker beside it, and keeps nothing of its own: what an
inbound link must remember, the edge does. It acknowledges there what the edge permits, and an
outbound one accepts here what is confirmed there. Rules L2, L3, L8, L9, L12 to L20, L22 and L23.
"""
