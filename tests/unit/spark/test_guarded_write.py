"""Options of a guarded micro-batch write: the sources of its query's id (K12)."""

from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException

from ackq.errors import InvalidArgumentError
from ackq.spark import txn_options


class Session:
    """A session whose threads know the query's id (`told`), or without `sparkContext` (None).

    `files` maps the readable paths to their lines.
    """

    def __init__(self, told, files=None):
        self._told = told
        self.files = files or {}
        self.read = self

    @property
    def sparkContext(self):  # noqa: N802 - its name in Spark
        if self._told is None:
            raise AttributeError("JVM_ATTRIBUTE_NOT_SUPPORTED")
        return SimpleNamespace(getLocalProperty={"sql.streaming.queryId": self._told}.get)

    def text(self, path):
        if path not in self.files:
            raise AnalysisException(f"no such path: {path}")
        return SimpleNamespace(collect=lambda: [(line,) for line in self.files[path]])


def options(session, **given):
    rows = SimpleNamespace(sparkSession=session)
    return txn_options(rows, 7, "good", **given)


def test_the_id_that_spark_tells():
    """The query's id is in txnAppId, so equal versions of two queries differ."""
    assert options(Session("a1b2")) == {"txnAppId": "good/a1b2", "txnVersion": "7"}
    assert options(Session("a1b2"), checkpoint="/gone")["txnAppId"] == "good/a1b2"


@pytest.mark.parametrize("told", ["", None], ids=["a thread of its own", "Spark Connect"])
def test_the_id_in_the_checkpoint(told):
    """The id is read for each batch, as a new query in the same folder has another id."""
    session = Session(told, {"/data/cp/metadata": ['{"id":"c3d4"}']})
    assert options(session, checkpoint="/data/cp/")["txnAppId"] == "good/c3d4"
    session.files["/data/cp/metadata"] = ['{"id":"e5f6"}']
    assert options(session, checkpoint="/data/cp")["txnAppId"] == "good/e5f6"


@pytest.mark.parametrize(
    ("files", "given", "said"),
    [
        ({}, {}, r"txn_options\(rows, batch_id, 'good', checkpoint='...'\)"),
        ({}, {"checkpoint": "/gone"}, "'/gone' is not the checkpoint of a query"),
        ({"/x/metadata": ["no json"]}, {"checkpoint": "/x"}, "/x/metadata has no query id"),
        ({"/x/metadata": ['{"ID": 1}']}, {"checkpoint": "/x"}, "/x/metadata has no query id"),
    ],
)
def test_no_id_is_an_error(files, given, said):
    """Without an id the write is refused, as a constant would make two queries one."""
    with pytest.raises(InvalidArgumentError, match=said):
        options(Session(None, files), **given)
