"""Errors survive the boundaries that they cross."""

import pickle

import pytest

from ackq import errors


@pytest.mark.parametrize("cls", list(errors.BY_CODE.values()), ids=lambda cls: cls.__name__)
def test_errors_pickle_with_code_message_and_fields(cls):
    """Errors pickle completely, as they cross Spark's worker boundary."""
    error = cls("what happened, and the remedy", queue="q", tag=7)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is cls
    assert (copy.message, copy.fields) == (error.message, {"queue": "q", "tag": "7"})


def test_codes_are_unique():
    """Each code has one class, so that `from_code` is unambiguous."""
    classes = {errors.AckqError}
    todo = [errors.AckqError]
    while todo:
        for cls in todo.pop().__subclasses__():
            classes.add(cls)
            todo.append(cls)
    named = classes - {errors.AckqError}
    assert len({cls.code for cls in named}) == len(named) == len(errors.BY_CODE)


def test_every_error_has_a_status():
    """Each error class has a gRPC status, of its nearest ancestor in the table."""
    assert errors.status_of(errors.QueueFullError("x")) == "RESOURCE_EXHAUSTED"
    assert errors.status_of(errors.QueueNotFoundError("x")) == "NOT_FOUND"
    assert errors.status_of(errors.UnauthenticatedError("x")) == "UNAUTHENTICATED"
    assert errors.status_of(errors.PermissionDeniedError("x")) == "PERMISSION_DENIED"
    for cls in errors.BY_CODE.values():
        assert errors.status_of(cls("x")) in errors.STATUS.values()


def test_unknown_code_is_kept():
    """An error of a newer broker keeps its code and text."""
    error = errors.from_code("brand_new", "text", {"a": "b"})
    assert isinstance(error, errors.InternalError)
    assert (str(error), error.fields) == ("text", {"a": "b", "code": "brand_new"})
