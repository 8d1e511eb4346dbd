"""Reads logs of one JSON object a line: what cannot be read is noted, and the rest still counts."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

NAN = float("nan")


def objects(path: Path, notes: list[str], of_interest: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each line's number and object. Lines with none of the words are not even parsed."""
    if not path.is_file():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    for number, raw in enumerate(lines, 1):
        line = raw.decode("utf-8", "replace")
        if not line.strip() or (of_interest and not any(word in line for word in of_interest)):
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield number, value
        elif number == len(lines) and not line.endswith("\n"):
            notes.append(f"{path.name}: the last line was cut short and is left out.")
        else:
            notes.append(unreadable(path, number))


def unreadable(path: Path, number: int) -> str:
    """Return the note that a line was left out."""
    return f"{path.name}: line {number} cannot be read and is left out."


def as_number(value: Any) -> float:
    """Return a logged number: JSON has no NaN, so the logs write null for it."""
    return NAN if value is None else float(value)


def as_numbers(values: dict[str, Any]) -> dict[str, float]:
    """Return logged numbers by their names."""
    return {str(name): as_number(value) for name, value in values.items()}
