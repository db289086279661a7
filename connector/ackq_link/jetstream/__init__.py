"""Links with NATS JetStream: streams by position, acknowledgements that are answered."""
