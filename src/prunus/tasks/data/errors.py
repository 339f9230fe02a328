"""Errors of reading data. Every message names the file or folder, and says what to do."""

from prunus.errors import PrunusError


class DataError(PrunusError, RuntimeError):
    """Data that are missing, damaged, or impossible to download."""


class MissingDataError(DataError):
    """The files of a data set are not where they were looked for."""


class DamagedDataError(DataError):
    """A file exists but does not hold what it should."""
