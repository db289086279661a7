"""Acknowledged message queues for Spark Structured Streaming.

`ackq.client` talks to a broker without Spark, `ackq.spark` holds the data source, `ackq.errors` the
errors of both.
"""

__version__ = "0.1.0"
