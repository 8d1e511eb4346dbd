"""Memory stays flat over many rounds."""

import gc
from pathlib import Path
from typing import Any

from fedslice.modes import simulate
from tests.integration.support import run_config


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def test_memory_is_flat_over_rounds(tmp_path: Path) -> None:
    seen: dict[int, float] = {}

    def note(event: str, fields: dict[str, Any]) -> None:
        if event == "round" and fields["round"] in (30, 150):
            gc.collect()
            seen[fields["round"]] = _resident_mb()

    simulate(run_config(tmp_path, "federation.rounds=150", "federation.evaluate_every=30", "training.epochs=1"), note)
    assert seen[150] <= 1.02 * seen[30]
