"""Every error and warning that conovel raises on purpose, each with a number that never changes.

`errors.toml` beside this module says of each number what it means, its causes and what to do:
``conovel explain`` and the page `docs/errors.md` read it. The first digit says what it is about:
1 an argument, 2 a file, 3 an extra or a cluster, 4 a federation, 5 a run between agents, 6 bytes
of a model, 7 a warning.
"""

from __future__ import annotations

UNFORESEEN = "CN-001"  # an error that is none of these: a fault of conovel
CODES: dict[str, str] = {}  # name of a class -> its number


class Numbered:
    """What has a number, for people and programs: the class of an error or a warning.

    Attributes
    ----------
    code : str
        Such as ``"CN-101"``; a class without one of its own has that of its base.
    """

    code: str

    def __init_subclass__(cls, code: str = "") -> None:
        if code:
            cls.code = CODES[cls.__name__] = code
            cls.__doc__ = f"{code}: {cls.__doc__}"

    @classmethod
    def named(cls) -> dict[str, str]:
        """Return the name and the number of the class, for a record."""
        return {"fault": cls.__name__, "code": cls.code}

    def numbered(self) -> str:
        """Return the message, with the command that explains its number."""
        return with_number(str(self), self.code)


def with_number(text: str, code: str | None) -> str:
    """Return a message with the command that explains its number, if it has one."""
    return f"{text} [conovel explain {code}]" if code else text


class ConovelError(Numbered, Exception, code="CN-000"):
    """Base of every error raised on purpose by conovel."""


class InputError(ConovelError, ValueError, code="CN-100"):
    """An argument cannot be used; the message says which and what to do."""


class LevelError(InputError, code="CN-101"):
    """A level, or another fraction, that does not lie strictly between 0 and 1."""


class SampleError(InputError, code="CN-102"):
    """A sample that is empty, too small or of the wrong shape."""


class ColumnError(InputError, code="CN-103"):
    """Columns that are missing, extra, not numeric or not finite."""


class ValueTypeError(ColumnError, TypeError, code="CN-104"):
    """Values that are no numbers, such as texts, dates and other objects."""


class MissingValueError(ColumnError, code="CN-105"):
    """Missing values where there must be none."""


class ScorerError(InputError, code="CN-106"):
    """A scorer that offers no usable score, or whose polarity was not declared."""


class ModelError(InputError, code="CN-107"):
    """A fitted model that has no flat form."""


class PrivacyError(InputError, code="CN-108"):
    """An ε or δ of differential privacy that cannot be used, or a setting it is not proven for."""


class BatchRefusedError(InputError, code="CN-109"):
    """A batch that a ledger does not take: seen before, or of other normals or columns."""


class SpentRowsError(InputError, code="CN-110"):
    """Known normals that may not calibrate: verdicts that they decided have trained a score."""


class FileError(ConovelError, OSError, code="CN-200"):
    """A file or folder that cannot be read or written."""


class RunFileError(FileError, code="CN-201"):
    """A file that is not a run; the message names the field that is missing or wrong."""


class SavedFileError(FileError, code="CN-202"):
    """A file that is not a ledger or a detector, or was damaged or changed."""


class MissingExtraError(ConovelError, ImportError, code="CN-301"):
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


class ClusterError(ConovelError, code="CN-302"):
    """A cluster does not answer, or its workers keep dying."""


class FederationError(ConovelError, code="CN-400"):
    """A start-up kit, a certificate, a process or a connection that does not work."""


class ProtocolError(ConovelError, code="CN-500"):
    """A run between agents was broken off; nothing was decided."""


class LocalProtocolError(ProtocolError, code="CN-501"):
    """The run cannot go on at this party, or its methods were called out of order."""


class SiteFailedError(LocalProtocolError, code="CN-502"):
    """The site could not do its part; the cause is chained and never leaves the site."""


class RemoteProtocolError(ProtocolError, code="CN-510"):
    """Another party broke the protocol.

    Attributes
    ----------
    culprit : str
        Name of the party at fault; empty if the bytes do not say.
    """

    def __init__(self, message: str, culprit: str = "") -> None:
        super().__init__(message)
        self.culprit = culprit


class MalformedMessageError(RemoteProtocolError, code="CN-511"):
    """Bytes that are not a message, or not in its one legal form."""


class VersionMismatchError(RemoteProtocolError, code="CN-512"):
    """A party uses another version of the messages or of the model format."""


class ReplayedMessageError(RemoteProtocolError, code="CN-513"):
    """A message that belongs to another run."""


class MisroutedMessageError(RemoteProtocolError, code="CN-514"):
    """A message that is addressed to another party."""


class UnknownSenderError(RemoteProtocolError, code="CN-515"):
    """A message from a party that does not take part in this run."""


class ForgedSenderError(RemoteProtocolError, code="CN-516"):
    """A message under another name than the one that the transport has checked."""


class SignatureError(RemoteProtocolError, code="CN-517"):
    """A message or terms that the party in whose name they came did not sign."""


class DuplicateMessageError(RemoteProtocolError, code="CN-518"):
    """A second message where the run expects only one."""


class UnexpectedMessageError(RemoteProtocolError, code="CN-519"):
    """A message that the run does not expect at this point."""


class SpecMismatchError(RemoteProtocolError, code="CN-520"):
    """A party has other settings of the run."""


class SchemaMismatchError(RemoteProtocolError, code="CN-521"):
    """A party has other columns than the other parties."""


class ModelRefusedError(RemoteProtocolError, code="CN-522"):
    """A party sent a model that cannot be decoded."""


class KeyRefusedError(RemoteProtocolError, code="CN-523"):
    """A party sent a public key that masks cannot be made with."""


class CountOutOfRangeError(RemoteProtocolError, code="CN-524"):
    """A party claims more rows than it has."""


class CountRisingError(RemoteProtocolError, code="CN-525"):
    """A party's count rose although the limit on the ranks did not."""


class CommitmentError(RemoteProtocolError, code="CN-526"):
    """A party revealed something else than it had committed to."""


class OutcomeMismatchError(RemoteProtocolError, code="CN-527"):
    """Questions or an outcome that do not follow from the run so far."""


class SiteVanishedError(RemoteProtocolError, code="CN-528"):
    """A party was lost while the run needed it."""


class RefusedError(RemoteProtocolError, code="CN-529"):
    """A site does not agree to what the run asks of it."""


class RunAbortedError(RemoteProtocolError, code="CN-530"):
    """Another party broke the run off and gave a reason."""


class WireError(ConovelError, ValueError, code="CN-600"):
    """Bytes that are not a valid model; nothing was built from them."""


class MagicError(WireError, code="CN-601"):
    """The bytes do not begin like a model."""


class VersionError(WireError, code="CN-602"):
    """The bytes follow a version of the format that this release does not know."""


class HeaderError(WireError, code="CN-603"):
    """The header names an unknown kind, flag or width, or its counts disagree."""


class LimitError(WireError, code="CN-604"):
    """The header announces a model that is larger than the format allows."""


class TruncatedError(WireError, code="CN-605"):
    """The bytes end before the model does."""


class TrailingError(WireError, code="CN-606"):
    """The bytes go on after the end of the model."""


class ChecksumError(WireError, code="CN-607"):
    """The checksum is wrong: the bytes were damaged during transport."""


class SchemaError(WireError, code="CN-608"):
    """The model was made for other columns than the caller has."""


class StructureError(WireError, code="CN-609"):
    """The payload contradicts its header or itself."""


class NonFiniteError(WireError, code="CN-610"):
    """A number in the payload is infinite or NaN."""


class NonCanonicalError(WireError, code="CN-611"):
    """The bytes decode to a model, but are not its one legal form."""


class ConovelWarning(Numbered, UserWarning, code="CN-700"):
    """Base of every warning issued by conovel."""


class ResolutionWarning(ConovelWarning, code="CN-701"):
    """The calibration sample is too small for any rejection to be possible."""


class DataWarning(ConovelWarning, code="CN-702"):
    """Rows or columns that are legal, but probably a mistake."""


class GuaranteeWarning(ConovelWarning, code="CN-703"):
    """The run works with these settings, but no proof covers all of them."""
