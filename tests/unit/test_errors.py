"""Errors survive every boundary they cross."""

import pickle

import pytest

from ackq import errors


@pytest.mark.parametrize("cls", list(errors.BY_CODE.values()), ids=lambda cls: cls.__name__)
def test_errors_pickle_with_code_message_and_fields(cls):
    """Errors cross Spark's worker boundary whole."""
    error = cls("what happened, and the remedy", queue="q", tag=7)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is cls
    assert (copy.message, copy.fields) == (error.message, {"queue": "q", "tag": "7"})


def test_codes_are_unique():
    """Two classes of one code would make `from_code` guess."""
    classes = {errors.AckqError}
    todo = [errors.AckqError]
    while todo:
        for cls in todo.pop().__subclasses__():
            classes.add(cls)
            todo.append(cls)
    named = classes - {errors.AckqError}
    assert len({cls.code for cls in named}) == len(named) == len(errors.BY_CODE)


def test_every_error_has_a_status():
    """The one table covers the tree, most specific ancestor first."""
    assert errors.status_of(errors.QueueFullError("x")) == "RESOURCE_EXHAUSTED"
    assert errors.status_of(errors.QueueNotFoundError("x")) == "NOT_FOUND"
    assert errors.status_of(errors.UnauthenticatedError("x")) == "UNAUTHENTICATED"
    assert errors.status_of(errors.PermissionDeniedError("x")) == "PERMISSION_DENIED"
    for cls in errors.BY_CODE.values():
        assert errors.status_of(cls("x")) in errors.STATUS.values()


def test_unknown_code_is_kept():
    """A newer broker's error keeps its code and text."""
    error = errors.from_code("brand_new", "text", {"a": "b"})
    assert isinstance(error, errors.InternalError)
    assert (str(error), error.fields) == ("text", {"a": "b", "code": "brand_new"})
