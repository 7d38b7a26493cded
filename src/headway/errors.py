"""Every error Headway raises on purpose, and the exit code each one ends a command with.

HeadwayError                    1   something went wrong that the message explains
├── SpecError                   2   the job (or an override) is not valid; nothing was started
├── NotFound                    3   no such run, model, data set ...
├── DataError                   4   a data set cannot be had, or is damaged
├── SiteError                   5   the site cannot give what the job asks (isolation, ports, nodes)
├── RunFailed                   6   the run started and failed; its folder says why
├── FormatError                 7   a file of a run folder is damaged, missing or from a newer version
├── Busy                        8   the run is (not) running, so this cannot be done now
└── StorageError                9   a folder cannot be written: the disk is full or read-only, the folder is gone;
                                    or something else is in the place of a lock file

130 is a run stopped by Ctrl-C. A user's mistake shows the message alone; a traceback is a bug in Headway.
"""

from __future__ import annotations

from collections.abc import Iterable


class HeadwayError(Exception):
    """Base of all errors with a message meant for the user."""

    exit_code = 1


class SpecError(HeadwayError):
    exit_code = 2

    def __init__(self, message: str, unknown: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.unknown = tuple(unknown)
        """Dotted paths of settings that do not exist: whoever names one has not meant what else was set."""


class NotFound(HeadwayError):
    exit_code = 3


class DataError(HeadwayError):
    exit_code = 4


class SiteError(HeadwayError):
    exit_code = 5


class RunFailed(HeadwayError):
    exit_code = 6


class FormatError(HeadwayError):
    exit_code = 7


class MissingFile(FormatError, FileNotFoundError):
    """A file of a run folder is not there. Whoever reads one that may not be there yet catches FileNotFoundError."""


class Busy(HeadwayError):
    exit_code = 8


class StorageError(HeadwayError, OSError):
    """record/storage.py and locks.py make them. Whoever expects that a file cannot be written catches OSError."""

    exit_code = 9


INTERRUPTED_EXIT_CODE = 130
