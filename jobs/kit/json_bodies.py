"""Parses JSON bodies: checks that each is one JSON object, explains flaws, and extracts fields.

Invariant: Spark's `from_json` loses nothing of a body without a flaw. By itself it ignores text
after the first document, keeps the last value of a duplicate key, and replaces bytes that are not
UTF-8 and halves of surrogate pairs by other characters. The parser of this module refuses these.
Spark also rounds to the scale of a DECIMAL, which here does not fit, and makes infinity of a number
beyond the DOUBLEs, which here is a flaw. It remains that a DOUBLE has 17 digits, a FLOAT 7 and ends
at 3.4e38, a DATE has no time of day and a TIMESTAMP microseconds.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructType,
)

# Additional field of a parsed body; null if all other fields fit.
UNFIT: Final = "_unfit"

# Spark's workers cannot import this file, so the functions they need are pickled with the query.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def flaw(body: Column) -> Column:
    """Why a body, a binary column, is not one JSON object; null where it is."""
    return _of_each(body, explainer, StringType(), pa.string())


def parsed(body: Column, ddl: str) -> Column:
    """The fields of a body without a flaw, and `UNFIT`; a field that does not fit is null.

    A number does not fit if it has more digits than its DECIMAL, also one within the field.
    """
    text, wanted = body.cast("string"), StructType.fromDDL(ddl)
    unfit = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNFIT}
    found = F.from_json(text, f"{ddl}, {UNFIT} STRING", unfit)
    if "decimal" not in wanted.simpleString():
        return found
    texts = ArrayType(StringType()), pa.list_(pa.string())
    names = _of_each(body, partial(rounder, wanted), *texts)
    parts = [
        F.when(~F.array_contains(names, name), found[name]).alias(name) for name in wanted.names
    ]
    told = F.when(F.size(names) > 0, text).otherwise(found[UNFIT])
    return F.when(found.isNotNull(), F.struct(*parts, told.alias(UNFIT)))


def column_beside(fields: Iterable[str], name: str) -> str:
    """The name of a message's column beside fields of a body: `_message_id` beside `message_id`.

    Of two columns of one name, in any case, Spark can name neither, and Delta takes only one.
    """
    taken = {*map(str.lower, fields)}
    while name in taken:
        name = f"_{name}"
    return name


def _of_each(
    body: Column, make: Callable[[], Callable[[bytes], Any]], kind: DataType, arrow: pa.DataType
) -> Column:
    """The result of a function for each body; `make` makes it, as it cannot be pickled."""

    def of_all(bodies: pa.Array) -> pa.Array:
        of_one = make()
        return pa.array([of_one(each) for each in bodies.to_pylist()], arrow)

    if hasattr(F, "arrow_udf"):
        return F.arrow_udf(of_all, kind)(body)

    # Spark 4.0 calls a function for each row.
    made: list[Callable[[bytes], Any]] = []

    def of_row(one: bytes) -> Any:
        if not made:
            made.append(make())
        return made[0](one)

    return F.udf(of_row, kind)(body)


def rounder(wanted: StructType) -> Callable[[bytes], list[str]]:
    """A function that returns the names of a body's fields in which Spark rounds a number."""
    decode = json.JSONDecoder(parse_float=_decimal, parse_int=Decimal).decode

    def rounded(body: bytes) -> list[str]:
        try:
            found = decode(body.decode())
        except (ValueError, RecursionError):
            return []  # it has a flaw
        if not isinstance(found, dict):
            return []
        return [each.name for each in wanted if _is_rounded(found.get(each.name), each.dataType)]

    return rounded


def _decimal(number: str) -> Decimal | None:
    """A number of JSON; None if its exponent is too long for a Decimal, as for Spark's."""
    try:
        return Decimal(number)
    except ArithmeticError:
        return None


def _is_rounded(value: object, kind: DataType) -> bool:
    """Whether a value of JSON has a number with more digits after the point than its DECIMAL."""
    inner: list[tuple[object, DataType]] = []
    if isinstance(kind, DecimalType):
        return _has_more_digits(value, kind.scale)
    if isinstance(kind, StructType) and isinstance(value, dict):
        inner = [(value.get(each.name), each.dataType) for each in kind]
    elif isinstance(kind, MapType) and isinstance(value, dict):
        inner = [(each, kind.valueType) for each in value.values()]
    elif isinstance(kind, ArrayType) and isinstance(value, list):
        inner = [(each, kind.elementType) for each in value]
    return any(_is_rounded(*each) for each in inner)


def _has_more_digits(value: object, scale: int) -> bool:
    if isinstance(value, str):  # Spark takes these for numbers, too
        try:
            value = Decimal(value.replace(",", ""))
        except ArithmeticError:
            return False
    if not isinstance(value, Decimal) or not value.is_finite():
        return False
    _, digits, exponent = value.as_tuple()
    more = -int(exponent) - scale
    return more > 0 and any(digits[-more:])


def explainer() -> Callable[[bytes], str | None]:
    """A function that returns why a body is not one JSON object: about 8 us for 300 bytes.

    It gives no text of the body: a lease takes 262,144 different reasons (S6).
    """
    decode = json.JSONDecoder(
        object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite, parse_int=_whole
    ).decode

    def explain(body: bytes) -> str | None:
        try:
            text = body.decode()
            found = decode(text)
            if "\\u" in text:
                json.dumps(found, ensure_ascii=False).encode()
        except json.JSONDecodeError as error:
            return f"not JSON: {error.msg}"
        except UnicodeDecodeError as error:
            return f"not UTF-8: {error.reason}"
        except UnicodeEncodeError:
            return "not text: it has half a surrogate pair as an escape"
        except ValueError as error:
            return str(error)
        except RecursionError:
            return "too deeply nested"
        return (
            None if isinstance(found, dict) else f"not a JSON object, but a {type(found).__name__}"
        )

    return explain


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field appears twice")
    return found


def _finite(number: str) -> float:
    if math.isinf(found := float(number)):
        raise ValueError("a number is beyond the range of a DOUBLE")
    return found


def _whole(number: str) -> int:
    if len(number) > sys.float_info.max_10_exp:
        _finite(number)
    return int(number)


def _refuse(constant: str) -> None:
    raise ValueError(f"not JSON: {constant} is not a number of JSON")
