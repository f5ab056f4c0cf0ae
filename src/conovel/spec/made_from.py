"""What a schema was made from, so that a run can tell whether it may be used.

A schema that follows from the known normals alone knows all their levels and not those of the
test rows. Then normal test rows look strange, and the guarantee is lost. So a schema keeps digests
of the samples it was inferred from. A digest stands for a whole sample and not for rows: schemas
are shared between organisations, and who can guess a row could look it up among digests of rows.
The price is that some of the rows, or more rows than these, are not recognised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from conovel.errors import InputError
from conovel.spec.records import as_record
from conovel.stats.words import briefly

ONE_TABLE, BOTH_SAMPLES = "one table", "both samples"
_DIGITS = 16  # hexadecimal, of a digest
_MODULUS = 1 << 4 * _DIGITS


@dataclass(frozen=True)
class Contents:
    """What tells one sample from another: its number of rows, and the sum of their hashes.

    The order of the rows does not matter, and the contents of two samples together are a sum.
    """

    rows: int
    total: int

    def __add__(self, other: Contents) -> Contents:
        return Contents(self.rows + other.rows, (self.total + other.total) % _MODULUS)


NOTHING = Contents(0, 0)


def together(samples: Iterable[Contents | None]) -> Contents | None:
    """Give the contents of several samples together; None where those of one are not known."""
    listed = list(samples)
    return None if None in listed else sum(filter(None, listed), NOTHING)


@dataclass(frozen=True)
class MadeFrom:
    """The samples that a schema was inferred from."""

    columns: tuple[str, ...]  # that were hashed
    samples: tuple[Contents, ...]  # one table, or known normals and test rows

    @property
    def how(self) -> str:
        """Say in words how the schema was made."""
        return ONE_TABLE if len(self.samples) == 1 else BOTH_SAMPLES

    @property
    def whole(self) -> Contents:
        """The contents of all samples together."""
        return sum(self.samples, NOTHING)

    def holds(self, sample: Contents | None) -> bool:
        """Tell whether a sample is one of these, or all of them together."""
        return sample in (*self.samples, self.whole)

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain JSON types."""
        return {
            "how": self.how,
            "columns": list(self.columns),
            "rows": [sample.rows for sample in self.samples],
            "digests": [f"{sample.total:0{_DIGITS}x}" for sample in self.samples],
        }

    @classmethod
    def from_dict(cls, plain: Any) -> MadeFrom:
        """Read what :meth:`to_dict` wrote."""
        read = as_record(_Plain, plain, "made_from")
        if len(read.rows) != len(read.digests):
            raise InputError("made_from: there must be as many rows as digests")
        pairs = zip(read.rows, read.digests, strict=True)
        made = cls(read.columns, tuple(Contents(n, int(text, 16)) for n, text in pairs))
        if read.how != made.how:
            raise InputError(f"made_from: how must be {made.how!r}, not {briefly(read.how)}")
        return made


_Rows: TypeAlias = Annotated[int, Meta(gt=0, lt=1 << 53)]
_Digest: TypeAlias = Annotated[str, Meta(pattern=rf"\A[0-9a-f]{{{_DIGITS}}}\Z")]


@dataclass(frozen=True)
class _Plain:
    """What `conovel schema` writes: numbers of rows and digests of one or two samples."""

    how: str
    columns: tuple[str, ...]
    rows: Annotated[tuple[_Rows, ...], Meta(min_length=1, max_length=2)]
    digests: tuple[_Digest, ...]


def require_made_for(
    made: MadeFrom | None, null: Contents | None, test: Contents | None, *, fixed: bool = False
) -> None:
    """Check that a schema does not follow from one role of the rows of a run.

    Proof: Corollary 4 (docs/theory.md#cor-tables).

    `null` and `test` are None where they cannot be what the schema was made from. With `fixed` it
    must follow from none of these rows.
    """
    if made is None:  # a written agreement
        return
    both = null is not None and test is not None and made.whole == null + test
    has_null, has_test = both or made.holds(null), both or made.holds(test)
    if fixed and (has_null or has_test):
        raise InputError(
            "the schema was made from rows of this run, and in this regime rows of one agent are"
            " compared with rows of others: its features must follow from no row of the run. Make"
            " the schema from a table that is in no sample of the run, or agree on one in writing"
        )
    if has_null != has_test:
        roles = "known normals", "test rows"
        raise _of_one_role(
            *(roles if has_null else roles[::-1]),
            "both samples of one agent (conovel schema --null FILE --test FILE, or infer_schema"
            " with two tables), from a table that is neither of them",
        )


def require_made_for_later(
    made: MadeFrom | None, null: Contents | None, others: Contents | None
) -> None:
    """Check that a schema does not follow from known normals that calibrate for later rows.

    `others` are unlabelled rows, which are never tested.
    """
    if made is None or null is None:
        return
    if made.holds(null) or (others is not None and made.whole == null + others):
        raise _of_one_role(
            "known normals",
            "rows that are tested later",
            "the unlabelled rows or another table, leave the schema out so that it follows from"
            " the rows that train",
        )


def _of_one_role(role: str, other: str, instead: str) -> InputError:
    return InputError(
        f"the schema was made from the {role} and not from the {other}: it knows all levels of"
        f" the {role}, so that normal rows look different in the two samples, and the false"
        f" discovery rate is not controlled. Make the schema from {instead}, or agree on one in"
        " writing"
    )
