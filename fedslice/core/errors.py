"""The exceptions of FedSlice.

FedSliceError           anything a user should read as one clear sentence
├── UsageError          the command, the config, a path or a data set is wrong   exit code 2
│   └── DataError       a data set is missing, or is not what it should be       exit code 2
└── RunError            the run started and could not go on                      exit code 1
"""


class FedSliceError(Exception):
    """The root of every error meant for a user's eyes."""

    exit_code = 1


class UsageError(FedSliceError):
    """What the user asked for cannot be done as written."""

    exit_code = 2


class DataError(UsageError):
    """A data set is missing, damaged or of another format."""


class RunError(FedSliceError):
    """The run cannot go on."""
