"""CSV that a spreadsheet does not run: no cell of text begins like a formula.

Ids, categories and names of columns come from others. A spreadsheet takes a cell that begins with
= + - @, a tab or a line end for a formula, and runs it. Such a cell is written with an apostrophe
before it, which spreadsheets do not show. A number stays as it is, also as text: ``-5``.

To read back what was written, remove one apostrophe from every text that begins with apostrophes
and one of these characters after them. Nothing else is changed, so this gives the same texts.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_FORMULA = r"^'*[=+\-@\t\r\n＝＋－＠]"  # a text that begins with apostrophes gets one more
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def neutral_texts(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    r"""Return texts with an apostrophe before those that begin like a formula.

    Examples
    --------
    >>> neutral_texts(pa.array(["=1+1", "-5", "- 5", "'@x", "plain", None])).to_pylist()
    ["'=1+1", '-5', "'- 5", "''@x", 'plain', None]
    """
    is_formula = pc.and_not(
        pc.match_substring_regex(values, _FORMULA), pc.match_substring_regex(values, _NUMBER)
    )
    if not pc.any(is_formula).as_py():
        return values
    mark, nothing = (pa.scalar(text, type=values.type) for text in ("'", ""))
    return pc.if_else(is_formula, pc.binary_join_element_wise(mark, values, nothing), values)


def neutral_table(table: pa.Table) -> pa.Table:
    """Return a table whose texts and names can be written as CSV for a spreadsheet."""
    names = neutral_texts(pa.array(table.column_names, pa.string())).to_pylist()
    columns = [_neutral_column(column) for column in table.columns]
    return pa.table(columns, names=names)


def _neutral_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind) and _is_text(kind.value_type):
        column = column.cast(kind.value_type)
    return neutral_texts(column) if _is_text(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )
