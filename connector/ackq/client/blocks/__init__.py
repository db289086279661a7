"""Blocks of messages: encoding of published and decoding of delivered Arrow columns."""
