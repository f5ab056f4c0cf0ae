"""Differential privacy of what a site sends: ε and δ as one frozen record.

Two data sets are neighbouring if one row of one of them is replaced: a known normal or a test row.
A site that sends models with (ε, δ) sends, for every set of models S,
P(models in S) ≤ e^ε P'(models in S) + δ, where P and P' belong to neighbouring data sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import Any, TypeAlias

from conovel.errors import LevelError, PrivacyError
from conovel.stats.levels import MAX_BITS, as_fraction, as_level

PrivacyLike: TypeAlias = "float | str | Rational | Privacy | None"

MAX_EPSILON = 100  # beyond, the noise is smaller than the rounding of the sums
DEFAULT_DELTA = Fraction(1, 10**6)


@dataclass(frozen=True)
class Privacy:
    """How much the models of a site may say about one row; values are checked when it is made.

    Attributes
    ----------
    epsilon : Fraction
        Above 0 and at most 100. Smaller is more private.
    delta : Fraction
        The probability with which more may be said. It must be far below 1/n for n rows:
        :meth:`require_small_delta`.

    Examples
    --------
    >>> str(Privacy(Fraction(4)))
    '4,1/1000000'
    """

    epsilon: Fraction
    delta: Fraction = DEFAULT_DELTA

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _as_epsilon(self.epsilon))
        try:
            object.__setattr__(self, "delta", as_level(self.delta, "δ of privacy"))
        except LevelError as error:
            raise PrivacyError(str(error)) from None

    def __str__(self) -> str:
        """Return the one spelling of it: ε and δ as fractions."""
        return f"{self.epsilon},{self.delta}"

    @property
    def in_words(self) -> str:
        """What a page or a terminal shows.

        Examples
        --------
        >>> as_privacy("4").in_words
        'ε = 4, δ = 1/1000000'
        """
        return f"ε = {self.epsilon}, δ = {self.delta}"

    def divided(self, n: int) -> Privacy:
        """Return what each of n runs may spend: (ε/n, δ/n) add up to (ε, δ).

        Examples
        --------
        >>> str(Privacy(Fraction(4)).divided(8))
        '1/2,1/8000000'
        """
        return Privacy(self.epsilon / n, self.delta / n)

    def require_small_delta(self, n_rows: int) -> None:
        """Refuse a δ with which a site could hand over a row chosen at random.

        Raises
        ------
        PrivacyError
            If δ is not below 1/n for the n rows of the site.
        """
        if self.delta * n_rows >= 1:
            raise PrivacyError(
                f"δ = {self.delta} of privacy is not below 1/{n_rows} for a site with {n_rows}"
                " rows: choose a smaller δ, such as privacy='4,1e-9'"
            )


def as_privacy(value: Any) -> Privacy | None:
    """Read what users write: None, a number ε, or a text "ε" or "ε,δ".

    Examples
    --------
    >>> as_privacy(4) == as_privacy("4") == as_privacy("4,1e-6")
    True
    >>> as_privacy("0.5,1e-9")
    Privacy(epsilon=Fraction(1, 2), delta=Fraction(1, 1000000000))
    """
    if value is None or isinstance(value, Privacy):
        return value
    if isinstance(value, str):
        epsilon, comma, delta = value.partition(",")
        return Privacy(*(_read(part) for part in ((epsilon, delta) if comma else (epsilon,))))
    return Privacy(value)


def _read(text: str) -> Fraction:
    try:
        return as_fraction(text, "privacy")
    except LevelError:
        raise _refused(text) from None


def _as_epsilon(value: Any) -> Fraction:
    if isinstance(value, bool):
        raise _refused(value)
    try:
        exact = Fraction(value) if isinstance(value, Rational) else as_fraction(str(value))
    except (LevelError, ValueError):
        raise _refused(value) from None
    if not 0 < exact <= MAX_EPSILON or exact.denominator.bit_length() > MAX_BITS:
        raise _refused(value)
    return exact


def _refused(value: Any) -> PrivacyError:
    try:
        shown = repr(value)[:40]
    except ValueError:  # an integer of more digits than Python writes
        shown = "a number of too many digits"
    return PrivacyError(
        f"privacy must be None, a number ε above 0 and up to {MAX_EPSILON}, or a text such as"
        f" '4' or '4,1/1000000' with ε and δ, not {shown}"
    )
