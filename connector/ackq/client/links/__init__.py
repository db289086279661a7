"""The client's side of links: the stream of an inbound one (L1-L11), reports of outbound ones."""
