"""The commands `ip` and `tc` of iproute2, as functions that say what failed."""

import subprocess

from fedslice.core.errors import RunError


def call(*argv: str, lines: list[str] | None = None) -> str:
    """Run a command and return what it printed.

    Args:
        argv: The command and its arguments.
        lines: What it reads, one command a line, with `-batch -`.

    Raises:
        RunError: It is not there, or it failed; with its own words.
    """
    text = "\n".join(lines or []) + "\n"
    try:
        return subprocess.run(argv, input=text, capture_output=True, text=True, check=True).stdout
    except OSError as error:
        raise RunError(f"{argv[0]}: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise RunError(f"{' '.join(argv)}: {error.stderr.strip() or f'exit status {error.returncode}'}") from error


def batch(command: str, namespace: str, lines: list[str]) -> None:
    """Run lines of `ip` or `tc` in a network namespace.

    Raises:
        RunError: One failed.
    """
    call(command, "-n", namespace, "-batch", "-", lines=lines)
