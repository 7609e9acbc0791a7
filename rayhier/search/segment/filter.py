"""Applies a filter, parsed from a request, to the rows of a table. Conditions on missing values are false."""

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Bools
from rayhier.spec.filter import And, Bound, Comparison, Exists, Filter, Not, OneOf, Or

FUNCTIONS: dict[Comparison, str] = {"gt": "greater", "gte": "greater_equal", "lt": "less", "lte": "less_equal"}


def matching(table: pa.Table, where: Filter) -> Bools:
    """Mark [n] the rows of a table that meet a filter on the table's columns.

    >>> table = pa.table({"year": [2019, None, 2021]})
    >>> matching(table, Not(Bound("year", "gte", 2020))).tolist()
    [True, True, False]
    """
    match where:
        case And(parts):
            return reduce(np.logical_and, (matching(table, part) for part in parts))
        case Or(parts):
            return reduce(np.logical_or, (matching(table, part) for part in parts))
        case Not(part):
            return ~matching(table, part)
        case Exists(field, present):
            return _bools(pc.is_valid(table[field]) if present else pc.is_null(table[field]))
        case OneOf(field, values):
            kind = table[field].type
            # `is_in` compares bits, which differ for 0.0 and -0.0.
            zeros = (0.0, -0.0) if pa.types.is_floating(kind) and 0 in values else ()
            return _bools(pc.is_in(table[field], pa.array([*values, *zeros], kind)))
        case Bound(field, comparison, value):
            return _bools(pc.call_function(FUNCTIONS[comparison], [table[field], pa.scalar(value, table[field].type)]))


def _bools(column: pa.ChunkedArray) -> Bools:
    return np.asarray(pc.fill_null(column, fill_value=False).to_numpy())
