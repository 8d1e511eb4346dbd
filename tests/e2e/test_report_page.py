"""A real browser draws the report, and nothing in it fails."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedslice.report import write_report
from tests.fake_runs import fake_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars"),
    "--virtual-time-budget=8000",
]
# What the browser logs when a script throws, or when the page asks for something that its policy forbids.
TROUBLE = re.compile(r"CONSOLE.*(Error|Refused|violates)")

IN_RADIO_CARD = 2 * (3 + 1) + 2 * 3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine: apt-get install chromium"),
]


def browse(page: Path, *arguments: str) -> str:
    """Open a page and return its DOM as the scripts left it."""
    assert BROWSER
    profile = page.parent / "profile"
    command = [BROWSER, *QUIET, f"--user-data-dir={profile}", "--enable-logging=stderr", *arguments, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert not TROUBLE.search(done.stderr), TROUBLE.findall(done.stderr)
    return done.stdout


def visible(dom: str) -> str:
    """Return the page without its scripts and style."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", dom, flags=re.DOTALL)


def latency(shown: str) -> str:
    """Return the card of latencies."""
    return shown.split("<h3>Latency by slice</h3>")[1].split("</h3>")[0]


def plots(dom: str) -> int:
    """Return how many plots Plotly has drawn: each has one drag layer."""
    return len(re.findall(r'class="draglayer', visible(dom)))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    fake_run(tmp_path / "a", name="uniform", void=[3], gaps=[5])
    fake_run(tmp_path / "b", name="loss and speed", seed=2)
    return write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "report.html")


def test_all_plots_are_drawn(page: Path) -> None:
    dom = browse(page, "--window-size=1280,2000", "--dump-dom")
    assert plots(dom) == 6 + 2 * 8 + 2 + 2
    shown = visible(dom)
    assert 'class="main-svg"' in shown
    assert "Error" not in shown
    # Both runs' lines stand in each of the plots that overlay runs, with T* beside the round times; of each run's own radio
    # there are two stacks of three slices and a background, and two clouds of nodes. Each cohort is a picture.
    assert len(re.findall(r'class="trace scatter', shown)) == 2 * (6 + 2 + 2) + 2 * IN_RADIO_CARD
    assert len(re.findall(r'class="js-fill" d="M', shown)) == 2 * 2 * 4
    assert len(re.findall(r'class="trace bars"', latency(shown))) == 2
    assert len(re.findall(r"<image[^>]*data:image/png", shown)) == 2
    assert "virtual time (s)" in shown


def test_a_button_hides_its_run(page: Path) -> None:
    clicking = page.with_name("clicked.html")
    click = '<script>document.querySelector(".runs button").click()</script></body>'
    clicking.write_text(page.read_text(encoding="utf-8").replace("</body>", click), encoding="utf-8")
    shown = visible(browse(clicking, "--window-size=1280,2000", "--dump-dom"))
    assert len(re.findall(r'aria-pressed="false"', shown)) == 1
    # Those in the run's own cards are hidden with the cards.
    assert len(re.findall(r'class="trace scatter', shown)) == (6 + 2 + 2) + 2 * IN_RADIO_CARD
    assert len(re.findall(r'class="trace bars"', latency(shown))) == 1
    assert len(re.findall(r'data-run="0" hidden', shown)) == 4
    assert 'data-run="1" hidden' not in shown


@pytest.mark.parametrize("flaw", ["<script>nowhere()</script>", '<img src="https://example.org/a.png">'])
def test_trouble_would_be_heard(page: Path, flaw: str) -> None:
    flawed = page.with_name("flawed.html")
    flawed.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{flaw}</body>"), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"Error|Refused|violates"):
        browse(flawed, "--dump-dom")


@pytest.mark.parametrize("width", [500, 1280])
def test_the_page_is_no_wider_than_the_window(page: Path, width: int) -> None:
    measuring = page.with_name("measured.html")
    measure = "<script>addEventListener('load', () => document.title = 'overflow ' + " + (
        "(document.documentElement.scrollWidth - document.documentElement.clientWidth))</script></body>"
    )
    measuring.write_text(page.read_text(encoding="utf-8").replace("</body>", measure), encoding="utf-8")
    dom = browse(measuring, f"--window-size={width},2000", "--dump-dom")
    assert "<title>overflow 0</title>" in dom
    picture = page.with_name(f"{width}.png")
    browse(page, f"--window-size={width},2000", f"--screenshot={picture}")
    assert picture.stat().st_size > 30_000
