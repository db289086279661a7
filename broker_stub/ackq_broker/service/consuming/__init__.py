"""Consuming (rules C): channel streams, dispatch, settlement, transport acknowledgements."""
