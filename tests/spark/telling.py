"""telling.py ENDPOINT FOLDER CA TOKEN_FILE CERT KEY: keeps Spark's output on queries with secrets.

Everything goes into FOLDER: plans, progress, errors, event log, checkpoints, pickled partitions,
the pages and the REST answers of Spark's UI. Standard output and error are the log, at level INFO.
"""

import contextlib
import json
import pickle
import sys
import urllib.request
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from ackq.spark import configure, settle
from ackq.spark.options import options as parse
from ackq.spark.source.browse import AckqBrowser
from ackq.spark.source.reader import AckqStreamReader

endpoint, folder, ca, token_file = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:5]
secret, ca_pem, cert_pem, key_pem = (
    Path(path).read_text(encoding="ascii").strip() for path in (token_file, ca, *sys.argv[5:])
)
texts = {"tlsCaPem": ca_pem, "tlsCertPem": cert_pem, "tlsKeyPem": key_pem}
options = {"endpoint": endpoint, "token": secret, **texts}

spark = (
    configure(SparkSession.builder.master("local[2]").appName("telling"))
    .config("spark.ui.enabled", "true")
    .config("spark.ui.port", "0")
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.compress", "false")
    .config("spark.eventLog.dir", (folder / "events").as_uri())
    .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("INFO")


def keep(name: str, content: str | bytes) -> None:
    """Writes a file that the test will search."""
    path = folder / "told" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def plans(name: str, df: DataFrame) -> None:
    execution = df._jdf.queryExecution()
    keep(f"plans/{name}", f"{execution.toString()}\n{execution.logical().toJSON()}\n{df!r}")


def stream(rows: DataFrame, name: str, **target: str) -> None:
    run(rows.writeStream.format("ackq").options(**options, **target), name)


def run(writer, name: str) -> None:
    query = (
        writer.queryName(name)
        .option("checkpointLocation", str(folder / "checkpoints" / name))
        .trigger(availableNow=True)
        .start()
    )
    with contextlib.suppress(PySparkException):
        query.awaitTermination()
    plan = query._jsq.explainInternal(True)
    keep(f"queries/{name}", json.dumps([*query.recentProgress, query.status, plan], default=str))
    keep(f"errors/{name}", str(query.exception()))


def source(**more: str) -> DataFrame:
    return spark.readStream.format("ackq").options(**options, queue="in", **more).load()


def each(rows: DataFrame, batch_id: int) -> None:
    settle(rows.filter("body = 'bad'"), "rejected", reason="bad", **options)
    good = rows.filter("body != 'bad'").select("body")
    plans(f"batch-{batch_id}", good)
    once = {"txnAppId": "telling", "txnVersion": str(batch_id)}
    good.write.format("ackq").mode("append").options(**options, queue="out", **once).save()


def fails(name: str, action) -> None:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - any error is kept
        keep(f"errors/{name}", f"{error!r}\n{error}")
    else:
        raise AssertionError(f"{name} did not fail")


# --- the pickled input of tasks ---

schema = StructType.fromDDL("body binary")
few = {"queue": "in", "session": "pickled", "maxMessagesPerTrigger": "2"}
reader = AckqStreamReader(parse.source({**options, **few}), schema)
start = reader.initialOffset()
while (end := reader.latestOffset(start, ReadMaxRows(2))) == start:
    pass
browser = AckqBrowser(parse.browse({**options, "queue": "in"}), schema)
partitions = [*reader.partitions(start, end), *browser.partitions()]
assert len(partitions) == 2
keep("pickled/partitions", pickle.dumps(partitions))
# A reader goes to the tasks as well. Only a token file keeps the token itself out of it.
named = {"endpoint": endpoint, "tlsCa": ca, "tokenFile": token_file, "queue": "in"}
keep("pickled/reader", pickle.dumps(AckqBrowser(parse.browse(named), schema)))

# --- queries ---


def add(bodies: str) -> None:
    rows = spark.sql(f"SELECT explode(array({bodies})) AS body")
    rows.write.format("ackq").mode("append").options(**options, queue="in").save()


stream(source().select("body"), "exactly-once", queue="out")
add("'more'")
stream(source(session="b").select("body"), "at-least-once", queue="out", guarantee="at-least-once")
add("'bad', 'good'")
run(source(session="c").writeStream.foreachBatch(each), "each")
add("'lost'")
stream(source(session="d").select("body"), "nowhere", exchange="gone", routingKey="k")

rows = spark.read.format("ackq").options(**options, queue="out").load()
plans("browse", rows)
rows.groupBy("queue").count().collect()
given = ", ".join(f"{name} '{text}'" for name, text in {**options, "queue": "out"}.items())
spark.sql(f"CREATE TEMPORARY VIEW v USING ackq OPTIONS ({given})")
plans("view", spark.sql("SELECT count(*) FROM v"))
spark.sql("SELECT count(*) FROM v").collect()
spark.sql("CREATE TABLE t (body binary) USING ackq")
table = spark.read.options(**options, queue="out").table("t")
plans("table", table)
table.collect()


def browse(**more: str) -> list[object]:
    return spark.read.format("ackq").options(**{**options, "queue": "out", **more}).load().collect()


tags = spark.range(1).selectExpr("id + 1 AS delivery_tag")
fails("missing", lambda: browse(queue="gone"))
fails("unknown", lambda: browse(queu="x"))
fails("both", lambda: browse(tokenFile=token_file))
fails("bad", lambda: browse(token=f"{secret} x"))
fails("wrong", lambda: browse(token=f"{secret}x"))
fails("settle", lambda: settle(tags, "accepted", session="gone", **options))

# --- the UI ---

ui = spark.sparkContext.uiWebUrl
api = f"{ui}/api/v1/applications/{spark.sparkContext.applicationId}"
pages = {
    "environment": f"{api}/environment",
    "sql": f"{api}/sql?details=true&planDescription=true&length=1000",
    "jobs": f"{api}/jobs",
    "stages": f"{api}/stages?details=true",
    "page-environment": f"{ui}/environment/",
    "page-sql": f"{ui}/SQL/",
    "page-streaming": f"{ui}/StreamingQuery/",
    "page-stages": f"{ui}/stages/",
}
opened = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for name, url in pages.items():
    keep(f"ui/{name}", opened.open(url).read())
for execution in json.loads((folder / "told/ui/sql").read_text()):
    number = execution["id"]
    page = opened.open(f"{ui}/SQL/execution/?id={number}").read()
    keep(f"ui/execution-{number}", page)
spark.stop()
