"""The Spark sessions that crash tests start in their own process."""

from importlib.metadata import version

LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
# The Delta package for the installed Spark.
SPARK = ".".join(version("pyspark").split(".")[:2])
DELTA = {
    "spark.jars.packages": f"io.delta:delta-spark_{SPARK}_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}


def builder(name, master, settings, *, delta=False):
    """The builder of a session with these settings; PySpark is imported lazily, as it is slow."""
    from pyspark.sql import SparkSession

    every = LOCAL | (DELTA if delta else {}) | settings
    return SparkSession.builder.appName(name).master(master).config(map=every)
