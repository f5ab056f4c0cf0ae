"""The settings of a run that are no plain numbers: composites, precision, counting, privacy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Rational
from typing import TYPE_CHECKING, Any, TypeAlias

from conovel.errors import InputError, LevelError, PrivacyError
from conovel.stats.levels import MAX_FRACTION_BITS, as_fraction, as_level
from conovel.stats.words import briefly

if TYPE_CHECKING:
    from conovel.spec.regimes import Regime
    from conovel.spec.run_spec import RunSpec


AUTO = "auto"
STACKED = "stacked"
COMPOSITES = (AUTO, "mean", "max", "min", STACKED)


def as_composite(name: Any) -> str:
    """Check the name of a composite."""
    if not isinstance(name, str) or name not in COMPOSITES:
        raise InputError(f"composite must be one of {', '.join(COMPOSITES)}, not {briefly(name)}")
    return name


Bits: TypeAlias = int | str | None
COMPACT = "compact"
MAX_BITS = 16
_COMPACT_BYTES = re.compile(r"compact:((?=0*[1-9])[0-9]{1,9})")


def as_bits(bits: Any) -> Bits:
    """Check a precision and return its one spelling.

    It is None, an integer from 1 to 16, "compact", or "compact:300" for a compact model of at most
    300 bytes.

    >>> as_bits("compact:0300")
    'compact:300'
    """
    if bits is None:
        return None
    if isinstance(bits, str):
        if bits == COMPACT:
            return COMPACT
        if match := _COMPACT_BYTES.fullmatch(bits):
            return f"{COMPACT}:{int(match[1])}"
    elif isinstance(bits, Integral) and not isinstance(bits, bool):
        return check_bits(int(bits))
    raise InputError(
        f"bits must be None, an integer from 1 to {MAX_BITS}, 'compact:BYTES' or 'compact', not"
        f" {briefly(bits)}"
    )


def exposure_note(bits: Bits) -> str:
    """Say what models of a stated precision give away; an empty text for compact models.

    Examples
    --------
    >>> exposure_note("compact")
    ''
    >>> print(exposure_note(4))
    models are sent with 4 bits instead of compact: rows behind a random forest are then told from
    others with AUC 0.71 (trees of depth 5) to 0.97 (of full depth), and 0.5 is a guess; see
    conovel privacy
    """
    if isinstance(bits, str):
        return ""
    sent, shallow, deep = f"with {bits} bits", "0.71", "0.97"
    if bits is None:
        sent, shallow, deep = "in float64", "0.81", "1.00"
    return (
        f"models are sent {sent} instead of compact: rows behind a random forest are then told"
        f" from others with AUC {shallow} (trees of depth 5) to {deep} (of full depth), and 0.5 is"
        " a guess; see conovel privacy"
    )


def check_bits(bits: int) -> int:
    """Return a number of bits if it can be the width of a quantizer."""
    if not isinstance(bits, Integral) or isinstance(bits, bool) or not 1 <= bits <= MAX_BITS:
        raise InputError(f"bits must be from 1 to {MAX_BITS}, not {briefly(bits)}")
    return int(bits)


ROUNDS, COMMITTED = "rounds", "committed"
COUNTING = (ROUNDS, COMMITTED)
TO_COORDINATOR, TO_MEMBERS = "coordinator", "members"
FEWEST_FOR_LIARS = 4  # sites of a run between organisations that tolerates a liar by default
REVEAL_TO = (TO_COORDINATOR, TO_MEMBERS)


def has_counting(regime: Regime) -> bool:
    """Tell whether a regime can count in either way."""
    return not regime.refusal("counting")


def choose_masks(regime: Regime) -> bool:
    """Choose masks between organisations wherever agents send sums."""
    return not regime.refusal("masks")


def choose_counting(regime: Regime, pi0: object, on_dropout: str, repeats: int = 1) -> str:
    """Choose how to count between organisations: committed, wherever that is possible."""
    possible = has_counting(regime) and pi0 is None and on_dropout == "abort" and repeats == 1
    return COMMITTED if possible else ROUNDS


def choose_liars(
    regime: Regime, n_agents: int, counting: str, excluded: Mapping[str, bool] | None = None
) -> int:
    """Choose how many liars a run between organisations tolerates if its operator does not say.

    `excluded` has options that no rule with liars is proven for, and whether they are given. If
    they stand against tolerance, the operator has to write ``--liars 0``, which every site reads
    in the terms.
    """
    if n_agents < FEWEST_FOR_LIARS or not has_counting(regime):
        return 0
    given = [option for option, is_given in (excluded or {}).items() if is_given]
    if given or counting != COMMITTED:
        option = given[0] if given else f"--counting {counting}"
        raise InputError(
            f"a run of {n_agents} sites tolerates one that lies about its counts, which is not"
            f" possible with {option}: leave that out, or write --liars 0, and every site reads"
            " in the terms that no member may lie"
        )
    return 1


def check_counting(spec: RunSpec) -> None:
    """Refuse settings of the counts that are not proven, and masks where there are no sums."""
    if spec.masks is not False:
        _check_masks(spec)
    _as_one_of("counting", spec.counting, COUNTING)
    _as_one_of("reveal_to", spec.reveal_to, REVEAL_TO)
    for setting, is_given in (("liars", spec.liars), ("counting", spec.counting == COMMITTED)):
        if is_given and (reason := spec.regime.refusal(setting)):
            raise InputError(reason)
    if spec.liars and spec.counting != COMMITTED:
        raise InputError(
            f"liars={spec.liars} needs counting='committed': in rounds an agent can fit its counts"
            " to those of the others"
        )
    if spec.liars and spec.repeats > 1:
        raise InputError(
            "repeats adds up evidence by counts that nobody has committed to: take repeats=1, or"
            " liars=0"
        )
    if spec.counting == COMMITTED:
        _check_committed(spec)
    elif spec.reveal_to != TO_COORDINATOR:
        raise InputError(
            "counts in rounds are not revealed to members: leave reveal_to at 'coordinator', or"
            " take counting='committed'"
        )


def _check_masks(spec: RunSpec) -> None:
    if not isinstance(spec.masks, bool):
        raise InputError(f"masks must be true or false, not {briefly(spec.masks)}")
    if reason := spec.regime.refusal("masks"):
        raise InputError(reason)


def _check_committed(spec: RunSpec) -> None:
    if spec.pi0 is not None:
        raise InputError(
            "pi0 needs counting='rounds': agents commit to counts for every k, and with an"
            " estimate of the nulls these are not known before the counts are"
        )
    if spec.on_dropout != "abort":
        raise InputError(
            "committed counting ends when a commitment is not opened: leave on_dropout at 'abort',"
            " or take counting='rounds'"
        )


def _as_one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name} must be {' or '.join(map(repr, allowed))}, not {briefly(value)}")


PrivacyLike: TypeAlias = "float | str | Rational | Privacy | None"

MAX_EPSILON = 100  # beyond, the noise is smaller than the rounding of the sums
DEFAULT_DELTA = Fraction(1, 10**6)


@dataclass(frozen=True)
class Privacy:
    """How much the models of a site may say about one row; values are checked when it is made."""

    epsilon: Fraction  # above 0 and at most 100; smaller is more private
    # The probability with which more may be said. It must be far below 1/n for n rows.
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
        """What a page or a terminal shows."""
        return f"ε = {self.epsilon}, δ = {self.delta}"

    def divided(self, n: int) -> Privacy:
        """Return what each of n runs may spend: (ε/n, δ/n) add up to (ε, δ)."""
        return Privacy(self.epsilon / n, self.delta / n)

    def require_small_delta(self, n_rows: int) -> None:
        """Refuse a δ with which a site could hand over a row chosen at random: 1/n or more."""
        if self.delta * n_rows >= 1:
            raise PrivacyError(
                f"δ = {self.delta} of privacy is not below 1/{n_rows} for a site with {n_rows}"
                " rows: choose a smaller δ, such as privacy='4,1e-9'"
            )


def as_privacy(value: Any) -> Privacy | None:
    """Read what users write: None, a number ε, or a text "ε" or "ε,δ"."""
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
    if not 0 < exact <= MAX_EPSILON or exact.denominator.bit_length() > MAX_FRACTION_BITS:
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
