"""Which bodies the jobs accept as JSON, where Spark's own parser silently loses content."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "jobs"))

import enrich_queue
import queue_to_delta
from kit import json_bodies

# Each loses something in `from_json`, which reports no error.
LOSSY = {
    b'{"id":2}\n{"id":3}': "not JSON: Extra data",
    b'{"id":2} garbage': "not JSON: Extra data",
    b'{"id":2},': "not JSON: Extra data",
    b'{"id":2}}': "not JSON: Extra data",
    b'{"id":2,"name":"\xff"}': "not UTF-8: invalid start byte",
    b'{"id":2,"name":"\\ud800"}': "not text: it has half a surrogate pair as an escape",
    b'{"id":2,"id":3}': "a field appears twice",
    b'{"id":2,"inner":{"a":1,"a":2}}': "a field appears twice",
    b'{"id":2,"else":-1e999}': "a number is beyond the range of a DOUBLE",
    b'{"id":2,"else":-9%0400d}' % 0: "a number is beyond the range of a DOUBLE",
    b"": "not JSON: Expecting value",
}
DIGITS = b'{"id":1,"else":0.%s}' % (b"9" * 2_000)
OTHERS = {
    b'{"id":1,"name":"\xc3\xa9\\ud83d\\ude00"}': None,
    b' {"id":1,"else":[1]}\n': None,
    b'{"id":null}': "field 'id' is missing",
    b'{"id":"x","name":"n"}': "field 'id' does not fit int",
    DIGITS: "the body does not fit the fields",
    b"[1]": "not a JSON object, but a list",
}
SCHEMA = "id INT, name STRING"


@pytest.fixture
def rows(spark):
    bodies = [*LOSSY, *OTHERS]
    names = "body BINARY, message_id STRING, routing_key STRING, published_at TIMESTAMP"
    return spark.createDataFrame([(body, None, None, None) for body in bodies], names)


def test_spark_finds_nothing_wrong(rows):
    """Spark's parser alone reports no error; once it does, the jobs need no other."""
    found = rows.select(json_bodies.parsed(rows.body, SCHEMA).alias("json"), "body").collect()
    silent = {bytes(row.body) for row in found if not (row.json and row.json[json_bodies.UNFIT])}
    assert silent >= LOSSY.keys()


def test_what_spark_would_lose_is_a_problem(rows):
    """K8: a body that would lose content is not good, and its problem is named."""
    plan = enrich_queue.Plan("h:1", "in", "out", SCHEMA, required=("id",))
    found = enrich_queue.judged(rows, plan).collect()
    assert {bytes(row.body): row.problem for row in found} == LOSSY | OTHERS


def test_what_spark_would_lose_is_kept(rows):
    """A body that does not fit is in the table byte for byte, and no part of it becomes a row."""
    found = queue_to_delta.parse_json(rows, SCHEMA).collect()
    stored = [(row.id, row.name, row.unparsed and bytes(row.unparsed)) for row in found]
    assert stored[: len(LOSSY)] == [(None, None, body) for body in LOSSY]
    unfit = b'{"id":"x","name":"n"}'
    assert stored[len(LOSSY) :] == [
        (1, "é😀", None),
        (1, None, None),
        (None, None, None),
        (None, "n", unfit),
        (None, None, DIGITS),
        (None, None, b"[1]"),
    ]


@pytest.mark.parametrize(
    ("ddl", "added", "body"),
    [
        ("message_id STRING", {"twice": "message_id || message_id"}, '"twice":"fieldfield"'),
        ("message_id STRING, _Message_Id STRING", {}, '"_Message_Id":"f"'),
        ("message_id STRING", {"_message_id": "1"}, '"_message_id":1'),
        ("message_id STRING, `a.b``c` INT", {}, '"a.b`c":7'),
    ],
)
def test_a_field_of_the_name_of_the_message_id(spark, ddl, added, body):
    """K8: it is a field like others, and the message keeps its own id."""
    sent = b'{"message_id":"field","_Message_Id":"f","a.b`c":7}'
    names = "body BINARY, message_id STRING, delivery_tag BIGINT"
    rows = spark.createDataFrame([(sent, "own", 1)], names)
    plan = enrich_queue.Plan("h:1", "in", "out", ddl, added=added)
    (row,) = enrich_queue.enriched(enrich_queue.judged(rows, plan), plan).collect()
    assert row == (f'{{"message_id":"field",{body}}}', "own")


def test_fields_of_the_names_of_the_tables_columns(spark):
    """K8: they are fields like others, and the message's own columns have other names."""
    names = "body BINARY, message_id STRING, routing_key STRING, published_at TIMESTAMP"
    bodies = [b'{"Message_Id":"field","unparsed":1}', b"["]
    rows = spark.createDataFrame([(body, "own", "key", None) for body in bodies], names)
    found = queue_to_delta.parse_json(rows, "Message_Id STRING, unparsed INT, _unparsed INT")
    assert [row.asDict() for row in found.drop("routing_key", "published_at").collect()] == [
        {"_message_id": "own", "Message_Id": field, "unparsed": number, "_unparsed": None}
        | {"__unparsed": body}
        for field, number, body in (("field", 1, None), (None, None, b"["))
    ]


def test_a_number_is_not_rounded(spark):
    """K8: one with more digits than its DECIMAL has does not fit; Spark would store another one."""
    bodies = [b'{"a":1.23,"b":12345678901234567.89}', b'{"a":1.230}', b'{"b":1.239}', b'{"a":"1"}']
    names = "body BINARY, message_id STRING, routing_key STRING, published_at TIMESTAMP"
    rows = spark.createDataFrame([(body, None, None, None) for body in bodies], names)
    ddl = "a DECIMAL(5, 2), b DECIMAL(20, 2)"
    found = queue_to_delta.parse_json(rows, ddl).collect()
    assert [row.unparsed and bytes(row.unparsed) for row in found] == [None, None, bodies[2], None]
    plan = enrich_queue.Plan("h:1", "in", "out", ddl)
    (bad,) = enrich_queue.judged(rows, plan).where("problem IS NOT NULL").collect()
    assert (bytes(bad.body), bad.problem) == (bodies[2], "field 'b' does not fit decimal(20,2)")


@pytest.mark.parametrize(
    ("ddl", "fits", "rounded"),
    [
        ("n DECIMAL(38, 2)", b'{"n":1.550}', b'{"n":1.555}'),
        ("n DECIMAL(10, 2)", b'{"n":155e-2}', b'{"n":1.55%s1}' % (b"0" * 40)),
        ("n STRUCT<a: DECIMAL(10, 2)>", b'{"n":{"a":1.55}}', b'{"n":{"a":1.555}}'),
        ("n ARRAY<DECIMAL(10, 2)>", b'{"n":[1.55]}', b'{"n":[1.55,1.555]}'),
        (
            "n DECIMAL(10, 2)",
            b'{"n":1,"x":1e-99999999999999999999}',
            b'{"n":1.555,"x":1e-99999999999999999999}',
        ),
        ("n MAP<STRING, DECIMAL(10, 2)>", b'{"n":{"a":"1.55"}}', b'{"n":{"a":"1.555"}}'),
    ],
)
def test_no_number_of_any_decimal_is_rounded(spark, ddl, fits, rounded):
    """K8: however many digits the DECIMAL or the number has, and also one within the field."""
    rows = spark.createDataFrame([(fits,), (rounded,)], "body BINARY")
    found = rows.select(json_bodies.parsed(rows.body, ddl).alias("json")).collect()
    assert [row.json[json_bodies.UNFIT] for row in found] == [None, rounded.decode()]
    assert [row.json.n is None for row in found] == [False, True]
