"""The run log."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fedslice.core.events import EventLog
from fedslice.core.records import as_json


def test_each_event_is_a_line_at_once_and_listeners_hear_it_in_order(tmp_path: Path) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    path = tmp_path / "events.jsonl"
    with EventLog(path, (lambda event, fields: heard.append((event, fields)),)) as log:
        log.emit("began", nodes=3)
        line = json.loads(path.read_text().splitlines()[0])
        assert {k: v for k, v in line.items() if k != "at"} == {"event": "began", "nodes": 3}
        log.emit("round", round=1, loss=math.nan, cohort=(1, 2))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["began", "round"]
    assert lines[1]["loss"] is None
    assert lines[1]["cohort"] == [1, 2]
    assert 0 < lines[0]["at"] <= lines[1]["at"]
    assert [event for event, _ in heard] == ["began", "round"]
    assert math.isnan(heard[1][1]["loss"])


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with EventLog(tmp_path / "e.jsonl") as log:
            log.emit(name)
    assert [json.loads(line)["event"] for line in (tmp_path / "e.jsonl").read_text().splitlines()] == ["first", "second"]


def test_without_a_path_only_listeners_hear() -> None:
    heard: list[str] = []
    with EventLog(None, (lambda event, _: heard.append(event),)) as log:
        log.emit("a", value=object())  # nothing is written, so nothing need be JSON
    assert heard == ["a"]


def test_an_error_inside_still_closes_the_file(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e.jsonl")

    def interrupted() -> None:
        with log:
            log.emit("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ValueError, match="closed file"):
        log.emit("b")
    assert len((tmp_path / "e.jsonl").read_text().splitlines()) == 1


def test_as_json_replaces_what_json_has_not() -> None:
    value = {"a": [math.inf, 1.5, {"b": -math.inf}], 3: (math.nan, "x", None, True, 7)}
    assert as_json(value) == {"a": [None, 1.5, {"b": None}], "3": [None, "x", None, True, 7]}
    json.dumps(as_json(value), allow_nan=False)
