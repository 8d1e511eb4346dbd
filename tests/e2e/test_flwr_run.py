"""`flwr run .`: our app on Flower's own simulation engine gives what `fedslice simulate` gives."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedslice.modes import simulate
from tests.integration.support import COUNT, QUICKSTART, events_of, model_bytes, rounds_of, run_config

ROOT = Path(__file__).resolve().parents[2]
PROC = Path("/proc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Flower's simulation engine needs ray: the extra `flower`"
    ),
    pytest.mark.skipif(not PROC.is_dir(), reason="what Flower leaves running is found in /proc"),
]


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _started_under(home: Path) -> list[int]:
    """Return the processes that have inherited this run's FLWR_HOME, which no other has."""
    found = []
    for process in PROC.iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended, or is somebody else's
                continue
            if f"FLWR_HOME={home}".encode() in environment:
                found.append(int(process.name))
    return found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Give a home to Flower, and end all that lives there: `flwr run` leaves a SuperLink behind."""
    home = tmp_path / "flower"
    home.mkdir()
    yield home
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for pid in _started_under(home):
            try:
                os.kill(pid, kind)
            except ProcessLookupError:
                continue
        until = time.monotonic() + 5
        while _started_under(home) and time.monotonic() < until:
            time.sleep(0.1)
    assert not _started_under(home)


def _environment(home: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLWR_", "RAY_"))}
    return inherited | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        # Without these three, `flwr run` installs the app's dependencies anew, and phones home.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Not the SuperLink of somebody else's `flwr run`.
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": _free_port(),
        "FLWR_LOCAL_CONTROL_API_PORT": _free_port(),
    }


def test_flowers_engine_gives_the_same_cohorts_and_the_same_bytes(home: Path, tmp_path: Path) -> None:
    ours, flowers = tmp_path / "ours", tmp_path / "flowers"
    simulate(run_config(ours, "federation.rounds=2", config=QUICKSTART))
    command = [
        *("flwr", "run", ".", "--stream"),
        *("--federation-config", f"num-supernodes={COUNT + 1} client-resources-num-cpus=1"),
        *("--run-config", f'out="{flowers}" set="federation.rounds=2"'),
    ]
    done = subprocess.run(command, cwd=ROOT, env=_environment(home), timeout=200, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert (flowers / "summary.json").exists(), said
    assert [r["selected"] for r in rounds_of(flowers)] == [r["selected"] for r in rounds_of(ours)]
    assert rounds_of(flowers) == rounds_of(ours)
    assert model_bytes(flowers) == model_bytes(ours)
    joined = sorted(e["node"] for e in events_of(flowers) if e["event"] == "node_joined")
    assert joined == list(range(COUNT + 1))
