"""The run log: one JSON line for each thing that happened, for people, the report and the page."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedslice.core.records import as_json

Listener = Callable[[str, dict[str, Any]], None]


class EventLog:
    """Writes events to `events.jsonl` and tells listeners of them, in order."""

    def __init__(self, path: Path | None = None, listeners: tuple[Listener, ...] = ()) -> None:
        """Open the log. Without a path only the listeners hear."""
        self._file = path.open("a", encoding="utf-8") if path else None
        self._listeners = listeners

    def emit(self, event: str, **fields: Any) -> None:
        """Record one thing that happened.

        Args:
            event: What happened, e.g. `round` or `node_joined`.
            fields: Plain values that JSON can hold.
        """
        if self._file:
            line = {"at": round(time.time(), 3), "event": event, **as_json(fields)}
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()
        for listener in self._listeners:
            listener(event, fields)

    def __enter__(self) -> Self:
        """Return the log itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the file."""
        if self._file:
            self._file.close()
