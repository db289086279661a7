"""What every stream and call shares: mailboxes, error details, texts, dispositions."""
