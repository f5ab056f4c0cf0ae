"""Every error and warning that conovel raises on purpose.

::

    ConovelError
    ├── InputError               a caller's argument cannot be used   (also ValueError)
    │   ├── LevelError           a level or fraction outside (0, 1)
    │   ├── SampleError          an empty or too small sample, or a wrong shape
    │   ├── ColumnError          missing, extra, non-numeric or non-finite columns
    │   ├── ScorerError          a scorer without a usable, declared score
    │   └── ModelError           a fitted model that has no flat form
    ├── FileError                a file that cannot be read or written (also OSError)
    ├── MissingExtraError        an optional dependency is not installed (also ImportError)
    └── WireError                bytes from a peer that are not a model (also ValueError)

    ConovelWarning (UserWarning)
    ├── ResolutionWarning        too few calibration rows for any rejection
    ├── DataWarning              rows that are legal but suspicious
    └── GuaranteeWarning         a setting for which no proof covers the whole claim
"""

from __future__ import annotations


class ConovelError(Exception):
    """Base of every error raised on purpose by conovel."""


class InputError(ConovelError, ValueError):
    """An argument cannot be used; the message says which and what to do."""


class LevelError(InputError):
    """A level, or another fraction, that does not lie strictly between 0 and 1."""


class SampleError(InputError):
    """A sample that is empty, too small or of the wrong shape."""


class ColumnError(InputError):
    """Columns that are missing, extra, not numeric or not finite."""


class ScorerError(InputError):
    """A scorer that offers no usable score, or whose polarity was not declared."""


class ModelError(InputError):
    """A fitted model that has no flat form."""


class FileError(ConovelError, OSError):
    """A file or folder that cannot be read or written."""


class MissingExtraError(ConovelError, ImportError):
    """An optional dependency is not installed; the message names the extra."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}: install it with  pip install 'conovel[{extra}]'")


class WireError(ConovelError, ValueError):
    """Bytes that are not a valid model; nothing was built from them."""


class ConovelWarning(UserWarning):
    """Base of every warning issued by conovel."""


class ResolutionWarning(ConovelWarning):
    """The calibration sample is too small for any rejection to be possible."""


class DataWarning(ConovelWarning):
    """Rows or columns that are legal but probably not meant."""


class GuaranteeWarning(ConovelWarning):
    """The chosen combination runs, but no proof covers all of it."""
