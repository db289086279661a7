"""What all streams and calls share: stream buffers, error details, bounded texts, dispositions."""
