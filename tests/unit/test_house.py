"""The house rules that no linter knows."""

import ast
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

import fedslice

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fedslice", "server", "client", "edge", "quantum")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MOST_FILE_LINES, MOST_FUNCTION_LINES = 300, 40


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno + 1 <= MOST_FUNCTION_LINES, node.name


def test_round_is_told_in_under_a_hundred_lines() -> None:
    assert len((ROOT / "server" / "round.py").read_text(encoding="utf-8").splitlines()) < 100


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_pickled(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not called & {"torch.load", "torch.save"}


@pytest.mark.parametrize("name", PACKAGES)
def test_no_dependency_ships_a_package_of_our_names(name: str) -> None:
    assert set(packages_distributions().get(name, [])) <= {"fedslice"}


def test_version_is_said_once() -> None:
    assert fedslice.__version__ == version("fedslice")
    assert f"## [{fedslice.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
