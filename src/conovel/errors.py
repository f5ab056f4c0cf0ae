"""Every error and warning that conovel raises on purpose.

::

    ConovelError
    ├── InputError               a caller's argument cannot be used   (also ValueError)
    │   ├── LevelError           a level or fraction outside (0, 1)
    │   ├── SampleError          an empty or too small sample, or a wrong shape
    │   ├── ColumnError          missing, extra, non-numeric or non-finite columns
    │   │   ├── ValueTypeError       values that are no numbers            (also TypeError)
    │   │   └── MissingValueError    missing values where there must be none
    │   ├── ScorerError          a scorer without a usable, declared score
    │   ├── ModelError           a fitted model that has no flat form
    │   ├── PrivacyError         an ε or δ that cannot be kept, or a regime without a proof for it
    │   ├── BatchRefusedError    a batch that a ledger does not take
    │   └── SpentRowsError       known normals that may not calibrate any more
    ├── FileError                a file that cannot be read or written (also OSError)
    │   ├── RunFileError         a file that is not a run, or not a whole one
    │   └── SavedFileError       a file that is not a ledger, a detector or verdicts, or not whole
    ├── MissingExtraError        an optional dependency is not installed (also ImportError)
    ├── ClusterError             a cluster that does not answer or loses its workers
    ├── FederationError          a kit, a certificate or a process that does not work
    ├── ProtocolError            a run between agents that was broken off
    │   ├── LocalProtocolError       at this party
    │   │   └── SiteFailedError          the site could not do its part
    │   └── RemoteProtocolError      at another party, which `culprit` names
    │       ├── MalformedMessageError    bytes that are not a message
    │       ├── VersionMismatchError     another version of the messages or of the models
    │       ├── ReplayedMessageError     a message of another run
    │       ├── MisroutedMessageError    a message for another party
    │       ├── UnknownSenderError       from a party that does not take part
    │       ├── ForgedSenderError        under another name than the transport's
    │       ├── SignatureError           not signed by the party in whose name it came
    │       ├── DuplicateMessageError    sent twice
    │       ├── UnexpectedMessageError   sent at the wrong time
    │       ├── SpecMismatchError        other settings of the run
    │       ├── SchemaMismatchError      other columns
    │       ├── ModelRefusedError        a model that cannot be decoded
    │       ├── KeyRefusedError          a public key that masks cannot be made with
    │       ├── CountOutOfRangeError     more rows than the agent has
    │       ├── CountRisingError         counts that no ranks can give
    │       ├── OutcomeMismatchError     an outcome that does not follow from the run
    │       ├── SiteVanishedError        lost while the run needed it
    │       ├── RefusedError             a site that does not agree to the terms
    │       └── RunAbortedError          another party broke the run off
    └── WireError                bytes from a peer that are not a model (also ValueError)
        ├── MagicError           do not begin like a model
        ├── VersionError         of another version of the format
        ├── HeaderError          an unknown kind, flag or width, or counts that disagree
        ├── LimitError           larger than the format allows
        ├── TruncatedError       end too early
        ├── TrailingError        go on after the end of the model
        ├── ChecksumError        damaged during transport
        ├── SchemaError          made for other columns
        ├── StructureError       a payload that contradicts its header or itself
        ├── NonFiniteError       an infinite number or NaN
        └── NonCanonicalError    a valid model, but not in its one legal form

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


class ValueTypeError(ColumnError, TypeError):
    """Values that are no numbers, such as texts, dates and other objects."""


class MissingValueError(ColumnError):
    """Missing values where there must be none."""


class ScorerError(InputError):
    """A scorer that offers no usable score, or whose polarity was not declared."""


class ModelError(InputError):
    """A fitted model that has no flat form."""


class PrivacyError(InputError):
    """An ε or δ of differential privacy that cannot be used, or a setting it is not proven for."""


class BatchRefusedError(InputError):
    """A batch that a ledger does not take: seen before, or of other normals or columns."""


class SpentRowsError(InputError):
    """Known normals that may not calibrate: verdicts that they decided have trained a score."""


class FileError(ConovelError, OSError):
    """A file or folder that cannot be read or written."""


class RunFileError(FileError):
    """A file that is not a run; the message names the field that is missing or wrong."""


class SavedFileError(FileError):
    """A file that is not a ledger or a detector, or was damaged or changed."""


class MissingExtraError(ConovelError, ImportError):
    """An optional dependency is not installed; the message names the extra.

    Attributes
    ----------
    package, extra : str
        What is missing, and the extra that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}: install it with  pip install 'conovel[{extra}]'")
        self.package, self.extra = package, extra

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        # By default a copy is made from the message alone, and two arguments are needed.
        return type(self), (self.package, self.extra)


class ClusterError(ConovelError):
    """A cluster does not answer, or its workers keep dying."""


class FederationError(ConovelError):
    """A start-up kit, a certificate, a process or a connection that does not work."""


class ProtocolError(ConovelError):
    """A run between agents was broken off; nothing was decided."""


class LocalProtocolError(ProtocolError):
    """The run cannot go on at this party, or its methods were called out of order."""


class SiteFailedError(LocalProtocolError):
    """The site could not do its part; the cause is chained and never leaves the site."""


class RemoteProtocolError(ProtocolError):
    """Another party broke the protocol.

    Attributes
    ----------
    culprit : str
        Name of the party at fault; empty if the bytes do not say.
    """

    def __init__(self, message: str, culprit: str = "") -> None:
        super().__init__(message)
        self.culprit = culprit


class MalformedMessageError(RemoteProtocolError):
    """Bytes that are not a message, or not in its one legal form."""


class VersionMismatchError(RemoteProtocolError):
    """A party uses another version of the messages or of the model format."""


class ReplayedMessageError(RemoteProtocolError):
    """A message that belongs to another run."""


class MisroutedMessageError(RemoteProtocolError):
    """A message that is addressed to another party."""


class UnknownSenderError(RemoteProtocolError):
    """A message from a party that does not take part in this run."""


class ForgedSenderError(RemoteProtocolError):
    """A message under another name than the one that the transport has checked."""


class SignatureError(RemoteProtocolError):
    """A message or terms that the party in whose name they came did not sign."""


class DuplicateMessageError(RemoteProtocolError):
    """A second message where the run expects only one."""


class UnexpectedMessageError(RemoteProtocolError):
    """A message that the run does not expect at this point."""


class SpecMismatchError(RemoteProtocolError):
    """A party has other settings of the run."""


class SchemaMismatchError(RemoteProtocolError):
    """A party has other columns than the other parties."""


class ModelRefusedError(RemoteProtocolError):
    """A party sent a model that cannot be decoded."""


class KeyRefusedError(RemoteProtocolError):
    """A party sent a public key that masks cannot be made with."""


class CountOutOfRangeError(RemoteProtocolError):
    """A party claims more rows than it has."""


class CountRisingError(RemoteProtocolError):
    """A party's count rose although the limit on the ranks did not."""


class CommitmentError(RemoteProtocolError):
    """A party revealed something else than it had committed to."""


class OutcomeMismatchError(RemoteProtocolError):
    """Questions or an outcome that do not follow from the run so far."""


class SiteVanishedError(RemoteProtocolError):
    """A party was lost while the run needed it."""


class RefusedError(RemoteProtocolError):
    """A site does not agree to what the run asks of it."""


class RunAbortedError(RemoteProtocolError):
    """Another party broke the run off and gave a reason."""


class WireError(ConovelError, ValueError):
    """Bytes that are not a valid model; nothing was built from them."""


class MagicError(WireError):
    """The bytes do not begin like a model."""


class VersionError(WireError):
    """The bytes follow a version of the format that this release does not know."""


class HeaderError(WireError):
    """The header names an unknown kind, flag or width, or its counts disagree."""


class LimitError(WireError):
    """The header announces a model that is larger than the format allows."""


class TruncatedError(WireError):
    """The bytes end before the model does."""


class TrailingError(WireError):
    """The bytes go on after the end of the model."""


class ChecksumError(WireError):
    """The checksum is wrong: the bytes were damaged during transport."""


class SchemaError(WireError):
    """The model was made for other columns than the caller has."""


class StructureError(WireError):
    """The payload contradicts its header or itself."""


class NonFiniteError(WireError):
    """A number in the payload is infinite or NaN."""


class NonCanonicalError(WireError):
    """The bytes decode to a model, but are not its one legal form."""


class ConovelWarning(UserWarning):
    """Base of every warning issued by conovel."""


class ResolutionWarning(ConovelWarning):
    """The calibration sample is too small for any rejection to be possible."""


class DataWarning(ConovelWarning):
    """Rows or columns that are legal, but probably a mistake."""


class GuaranteeWarning(ConovelWarning):
    """The run works with these settings, but no proof covers all of them."""
