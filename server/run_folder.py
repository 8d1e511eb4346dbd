"""The folder of a run: config, rounds, events, checkpoints, and at the end the model and a summary."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedslice.core.config import dumps
from fedslice.core.errors import UsageError
from fedslice.core.events import EventLog, Listener
from fedslice.core.params import Model
from fedslice.core.records import RoundRecord, as_json
from server.model_file import model_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`summary.json`, and what `--json` prints."""

    name: str
    seed: int
    rounds: int
    void_rounds: int
    metrics: dict[str, float]
    bytes_down: int
    bytes_up: int
    virtual_s: float
    wall_s: float
    joules: float
    rejected: int
    model_sha256: str
    run_dir: str


@dataclass(slots=True)
class _Totals:
    """What the rounds so far amount to; they themselves are on disk."""

    rounds: int = 0
    void_rounds: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0
    virtual_s: float = 0.0
    joules: float = 0.0
    rejected: int = 0

    def add(self, record: RoundRecord) -> None:
        self.rounds += 1
        self.void_rounds += record.void
        self.metrics = record.evaluate or self.metrics
        self.bytes_down += record.bytes_down
        self.bytes_up += record.bytes_up
        self.virtual_s = record.virtual_s
        self.joules += record.joules
        self.rejected += len(record.rejected)


class RunFolder:
    """Writes a run's files as things happen, so that whatever ends the run, what was done is there."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        """Make the folder and write the resolved config.

        Raises:
            UsageError: The folder holds anything already, or cannot be made or written.
        """
        self.path = path
        self._started = time.perf_counter()
        self._totals = _Totals()
        self._lines = path / "rounds.jsonl"
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise UsageError(f"{path} is not empty, and nothing in it is to be lost; name another folder with --out")
            # Exclusively: of two runs that are started at once one makes it, and the other is told.
            with (path / "config.toml").open("x", encoding="utf-8") as file:
                file.write(dumps(config))
            self._lines.touch()
        except FileExistsError as error:
            raise UsageError(f"{path} is a file, or another run has just taken it; name another folder with --out") from error
        except OSError as error:
            raise UsageError(f"{path}: cannot write the run's folder ({error.strerror}); name another with --out") from error

    @classmethod
    def named(cls, out: str, name: str, config: Mapping[str, Any]) -> "RunFolder":
        """Return the folder `out` or, if that is empty, one under `runs/` named by the run and the time."""
        if out:
            return cls(Path(out), config)
        stamp = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        for path in (stamp, *(stamp.with_name(f"{stamp.name}-{i}") for i in range(2, 1000))):
            try:
                path.mkdir(parents=True)  # fails if another run has just taken the name
            except FileExistsError:
                continue
            except OSError as error:
                raise UsageError(f"{path}: cannot make the run's folder ({error.strerror}); name one with --out") from error
            return cls(path, config)
        raise UsageError(f"{stamp} and 998 more names are taken; name a folder with --out")

    def events(self, *listeners: Listener) -> EventLog:
        """Return the run's log of events."""
        return EventLog(self.path / "events.jsonl", listeners)

    def append(self, record: RoundRecord) -> None:
        """Write a round's line."""
        self._totals.add(record)
        with self._lines.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(as_json(asdict(record)), allow_nan=False) + "\n")

    def finish(self, name: str, seed: int, model: Model) -> Summary:
        """Write the model and the summary of the rounds so far."""
        data = model_bytes(model)
        (self.path / "model.safetensors").write_bytes(data)
        summary = Summary(
            name=name,
            seed=seed,
            **asdict(self._totals),
            wall_s=time.perf_counter() - self._started,
            model_sha256=hashlib.sha256(data).hexdigest(),
            run_dir=str(self.path),
        )
        text = json.dumps(as_json(asdict(summary)), indent=2, allow_nan=False)
        (self.path / "summary.json").write_text(text + "\n", encoding="utf-8")
        return summary
