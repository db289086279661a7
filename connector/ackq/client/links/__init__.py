"""The client's side of an inbound link: one stream, deliveries in and permits out (L1-L11)."""
