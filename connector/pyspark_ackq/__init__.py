"""Makes `format("ackq")` known to Spark without a registration call (K9).

Spark looks for `DefaultSource` in every top-level module whose name starts with `pyspark_`.
A failing import here would take every Python data source away from the user's applications, so this
imports only pyspark itself and modules that import nothing but the standard library.
"""

from ackq.spark.datasource import AckqDataSource as DefaultSource

__all__ = ["DefaultSource"]
