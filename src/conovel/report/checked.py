"""Reads JSON field by field; an error names the path of the field that is missing or wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeGuard, TypeVar

from conovel.errors import RunFileError

T = TypeVar("T")
REQUIRED: Any = object()


class Checked:
    """A JSON object from a file that may hold anything.

    Parameters
    ----------
    value : mapping
        What ``json.loads`` gave.
    path : str
        Its path in the file, for error messages.

    Examples
    --------
    >>> run = Checked({"settings": {"level": "1/10"}})
    >>> run.object("settings").text("level")
    '1/10'
    >>> run.object("settings").integer("seed")
    Traceback (most recent call last):
    ...
    conovel.errors.RunFileError: settings.seed is missing
    >>> run.object("settings").integer("level")
    Traceback (most recent call last):
    ...
    conovel.errors.RunFileError: settings.level is not a whole number
    """

    def __init__(self, value: Any, path: str = "") -> None:
        if not isinstance(value, Mapping):
            raise RunFileError(f"{path or 'the file'} is not an object")
        self.value: Mapping[str, Any] = value
        self.path = path

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.value)

    def text(self, key: str, default: Any = REQUIRED) -> str:
        """Read a text."""
        return self._read(key, default, "a text", _is_text)

    def integer(self, key: str, default: Any = REQUIRED) -> int:
        """Read a whole number that is not negative."""
        return self._read(key, default, "a whole number", _is_integer)

    def number(self, key: str, default: Any = REQUIRED) -> float:
        """Read a finite number."""
        return self._read(key, default, "a number", _is_number)

    def flag(self, key: str, default: Any = REQUIRED) -> bool:
        """Read true or false."""
        return self._read(key, default, "true or false", _is_flag)

    def texts(self, key: str, default: Any = REQUIRED) -> list[str]:
        """Read a list of texts."""
        return self._read(key, default, "a list of texts", _list_of(_is_text))

    def integers(self, key: str) -> list[int]:
        """Read a list of whole numbers."""
        return self._read(key, REQUIRED, "a list of whole numbers", _list_of(_is_integer))

    def numbers(self, key: str) -> list[float]:
        """Read a list of finite numbers."""
        return self._read(key, REQUIRED, "a list of numbers", _list_of(_is_number))

    def flags(self, key: str) -> list[bool]:
        """Read a list of true and false."""
        return self._read(key, REQUIRED, "a list of true and false", _list_of(_is_flag))

    def rows(self, key: str) -> list[Any]:
        """Read a list of anything."""
        return self._read(key, REQUIRED, "a list", _is_list)

    def object(self, key: str) -> Checked:
        """Read an object."""
        if key not in self.value:
            self.refuse(key, "is missing")
        return Checked(self.value[key], self._place(key))

    def objects(self, key: str) -> list[Checked]:
        """Read a list of objects."""
        place = self._place(key)
        return [Checked(item, f"{place}[{i}]") for i, item in enumerate(self.rows(key))]

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raise the error for a field."""
        raise RunFileError(f"{self._place(key)} {why}")

    def _read(self, key: str, default: Any, kind: str, fits: Callable[[Any], TypeGuard[T]]) -> T:
        value = self.value.get(key)
        if value is None and default is not REQUIRED:
            chosen: T = default
            return chosen
        if key not in self.value:
            self.refuse(key, "is missing")
        if not fits(value):
            self.refuse(key, f"is not {kind}")
        return value

    def _place(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


def _is_flag(value: Any) -> TypeGuard[bool]:
    return isinstance(value, bool)


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_number(value: Any) -> TypeGuard[float]:
    # The comparison is also false for NaN.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _list_of(fits: Callable[[Any], TypeGuard[T]]) -> Callable[[Any], TypeGuard[list[T]]]:
    def fit(value: Any) -> TypeGuard[list[T]]:
        return isinstance(value, list) and all(map(fits, value))

    return fit
