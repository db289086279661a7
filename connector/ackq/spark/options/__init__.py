"""The options of `format("ackq")`: their table, the parsing of values, the typed result."""
