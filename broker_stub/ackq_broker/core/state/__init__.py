"""The state of the broker: data that only `apply` changes."""
