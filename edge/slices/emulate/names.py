"""Names of network namespaces that say whose they are, so that what a killed process left can be told and removed."""

import itertools
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

from edge.slices.emulate.commands import call
from fedslice.core.errors import RunError

_MADE = Path("/run/netns")  # where `ip netns` keeps them
_OURS = re.compile(r"fs([0-9a-f]+)-([0-9a-f]+)-[0-9a-f]+-\w+")
_count = itertools.count()


def prefix() -> str:
    """Return the beginning of new names: unique to this process, also when its number is given out again."""
    return f"fs{os.getpid():x}-{_started(os.getpid()):x}-{next(_count):x}"


def remove(namespaces: list[str]) -> None:
    """Kill what runs in network namespaces and remove them, with all interfaces in them; one that is gone is fine."""
    for name in namespaces:
        with suppress(RunError):
            for pid in map(int, call("ip", "netns", "pids", name).split()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with suppress(RunError):
            call("ip", "netns", "del", name)


def remove_leftovers() -> list[str]:
    """Remove the namespaces of processes that are no more, and return their names."""
    found = sorted(path.name for path in _MADE.iterdir()) if _MADE.is_dir() else []
    left = [name for name in found if (match := _OURS.fullmatch(name)) and not _lives(*(int(n, 16) for n in match.groups()))]
    remove(left)
    return left


def _lives(pid: int, started: int) -> bool:
    return _started(pid) == started


def _started(pid: int) -> int:
    """Return when a process began, in clock ticks since the machine did; -1 when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1
    state, *rest = text.rpartition(")")[2].split()  # the name before it may hold anything
    return -1 if state in "ZX" else int(rest[18])
