"""Acknowledged message queues for Spark Structured Streaming.

`ackq.client` speaks to a broker without Spark, `ackq.spark` holds the data source, `ackq.errors`
what can go wrong.
"""

__version__ = "0.1.0"
