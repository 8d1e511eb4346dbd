"""TOML in, checked tables out: overrides, what is refused and how it is said, and writing it back."""

import math
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.partition import PartitionConfig
from client.tasks import TaskConfig
from fedslice.core.config import TABLES, RunConfig, dumps, load, override, validate
from fedslice.core.errors import UsageError
from fedslice.settings import Settings, checked
from server.aggregation import AggregationConfig, OptimizerConfig
from server.selection import SelectionConfig
from server.slicing import SlicingConfig

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "configs").glob("*.toml"))
UNIONS: dict[str, Any] = {
    "selection": SelectionConfig,
    "slicing": SlicingConfig,
    "aggregation": AggregationConfig,
    "optimizer": OptimizerConfig,
    "task": TaskConfig,
    "partition": PartitionConfig,
}
VARIANTS = [(table, variant) for table, union in UNIONS.items() for variant in get_args(get_args(union)[0])]


def refusal(tables: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        validate(Settings, tables, "my.toml")
    return str(caught.value)


def tag_of(variant: Any) -> dict[str, str]:
    """The key that names a variant of a union, and its value."""
    for name, field in variant.model_fields.items():
        if values := [v for v in get_args(field.annotation) if isinstance(v, str)]:
            return {name: values[0]}
    raise AssertionError(variant)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configs_are_read_back_from_their_own_dump(path: Path) -> None:
    settings = checked(RunConfig(str(path)))
    assert settings.federation.name == path.stem
    text = dumps(settings.model_dump())
    assert validate(Settings, tomllib.loads(text), "dump") == settings
    assert tomllib.loads(text) == without_none(settings.model_dump())


def without_none(value: Any) -> Any:
    if isinstance(value, list):
        return [without_none(v) for v in value]
    return {k: without_none(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value


@pytest.mark.parametrize(("table", "variant"), VARIANTS, ids=lambda part: getattr(part, "__name__", part))
def test_every_variant_of_every_union_comes_by_its_name_and_back(table: str, variant: Any) -> None:
    required = (
        {"strategy": "flwr.serverapp.strategy.FedAvg"} if table == "aggregation" and "strategy" in variant.model_fields else {}
    )
    aims = {"federation": {"deadline_s": 5.0, "close_at": 0.8}}  # some slicing policies need one
    settings = validate(Settings, {table: {**tag_of(variant), **required}, **aims}, "t")
    assert type(getattr(settings, table)) is variant
    assert validate(Settings, tomllib.loads(dumps(settings.model_dump())), "dump") == settings
    assert "unknown key" in refusal({table: {**tag_of(variant), **required, "zzz": 1}, **aims})


def test_all_defaults_work_and_tables_are_frozen() -> None:
    settings = validate(Settings, {}, "empty")
    assert (settings.federation.rounds, settings.selection.cohort, settings.nodes.count) == (30, 5, 10)
    with pytest.raises(ValueError, match="frozen"):
        settings.federation.rounds = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"federaton": {}}, "unknown key federaton; did you mean federation?"),
        ({"federation": {"ruonds": 3}}, "unknown key federation.ruonds; did you mean rounds?"),
        ({"federation": {"qqq": 3}}, "unknown key federation.qqq; known here: close_at, deadline_s,"),
        ({"selection": {"policy": "uniform", "cohrt": 3}}, "unknown key selection.cohrt; did you mean cohort?"),
        ({"selection": {"policy": "unifrom"}}, "selection.policy = 'unifrom' is not known; did you mean uniform?"),
        ({"selection": {"policy": "zzz"}}, "selection.policy = 'zzz' is not known; known: uniform, loss_and_speed"),
        ({"optimizer": {"name": "adan"}}, "optimizer.name = 'adan' is not known; did you mean adam?"),
        ({"network": {"slices": [{"down": {"dely": 1.0}}]}}, "unknown key network.slices.0.down.dely; did you mean delay_ms?"),
        ({"federation": {"rounds": "ten"}}, "federation.rounds: Input should be a valid integer (given: 'ten')"),
        ({"federation": {"rounds": 1.5}}, "federation.rounds: Input should be a valid integer (given: 1.5)"),
        ({"federation": {"rounds": True}}, "federation.rounds: Input should be a valid integer (given: True)"),
        ({"federation": {"rounds": 0}}, "federation.rounds: Input should be greater than or equal to 1 (given: 0)"),
        ({"federation": {"deadline_s": -1}}, "federation.deadline_s: Input should be greater than 0 (given: -1)"),
        ({"federation": 3}, "federation: a table is expected (given: 3)"),
        ({"federation": {"name": "a b"}}, "federation.name: String should match pattern"),
        ({"training": {"lr": "0.1"}}, "training.lr: Input should be a valid number (given: '0.1')"),
        ({"aggregation": {"rule": "flower"}}, "aggregation.strategy: Field required"),
        ({"aggregation": {"rule": "flower", "strategy": "flwr.Nope"}}, "no strategy can be imported from 'flwr.Nope'"),
        ({"aggregation": {"rule": "flower", "strategy": "pathlib.Path"}}, "pathlib.Path is not a flwr.server"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tables: dict[str, Any], text: str) -> None:
    assert text in refusal(tables)
    assert refusal(tables).startswith("my.toml: ")


def test_every_wrong_key_is_named_at_once() -> None:
    lines = refusal({"federation": {"rounds": 0, "seeed": 1}, "trainng": {}}).splitlines()
    assert len(lines) == 3
    assert {line.split(": ")[0] for line in lines} == {"my.toml"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=3", 3),
        ("a.b = 0.5", 0.5),
        ("a.b=true", True),
        ("a.b=[1, 2]", [1, 2]),
        ("a.b='x y'", "x y"),
        ("a.b=x y", "x y"),
        ("a.b=x=y", "x=y"),
        ("a.b=", ""),
        ("a.b={c = 1}", {"c": 1}),
    ],
)
def test_an_override_is_toml_or_else_a_string(text: str, value: Any) -> None:
    tables: dict[str, Any] = {"a": {"b": "old", "z": 1}}
    override(tables, text)
    assert tables == {"a": {"b": value, "z": 1}}


@pytest.mark.parametrize("text", ["a.b", "=3", "a..b=3", ".a=3", "a.=3", "a.z.y=3", ""])
def test_a_malformed_override_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--set"):
        override({"a": {"z": 1}}, text)


def test_load_reads_applies_in_order_and_names_what_fails(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xef\xbb\xbf[federation]\r\nrounds = 3\r\n")
    assert load(path, ["federation.rounds=4", "federation.rounds=5", "new.key=1"]) == {
        "federation": {"rounds": 5},
        "new": {"key": 1},
    }
    for content, text in ((b"[federation", "not valid TOML"), (b"\xff\xfe", "not valid TOML")):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=rf"c\.toml: {text}"):
            load(path)
    for missing in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(UsageError, match="cannot read the config"):
            load(missing)


def test_a_run_config_goes_through_flowers_plain_text() -> None:
    run = RunConfig("c.toml", ("a=1", "b='x=y'"), "data", "out")
    assert RunConfig.of(run.as_run_config()) == run
    assert RunConfig.of({"config": "c.toml"}) == RunConfig("c.toml")


def test_a_relative_config_is_found_beside_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert RunConfig("configs/digits.toml").tables()["federation"]["name"] == "digits"
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "digits.toml").write_text("[federation]\nname = 'mine'\n")
    assert RunConfig("configs/digits.toml").tables()["federation"]["name"] == "mine"


plain = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.floats(allow_nan=False), max_size=3),
    st.lists(st.text(max_size=3), max_size=2),
)
keys = st.text(max_size=6) | st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True)


@given(
    st.recursive(
        st.dictionaries(keys, plain, max_size=4), lambda t: st.dictionaries(keys, t | plain | st.lists(t, max_size=2), max_size=3)
    )
)
def test_dumps_writes_what_toml_reads(tables: dict[str, Any]) -> None:
    assert tomllib.loads(dumps(tables)) == tables


def test_dumps_keeps_nan_and_leaves_out_none() -> None:
    assert math.isnan(tomllib.loads(dumps({"a": {"b": math.nan, "c": None}}))["a"]["b"])
    assert dumps({"a": {"c": None}}) == "[a]\n"


def test_a_table_that_does_not_name_its_variant_is_the_default_one(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[selection]\ncohort = 3\n[task]\nhidden = [8]\n")
    settings = checked(RunConfig(str(file)))
    assert (settings.selection.policy, settings.selection.cohort) == ("loss_and_speed", 3)
    assert (settings.task.name, settings.task.hidden) == ("shuttle", [8])


def test_every_table_is_listed_for_those_who_know_only_some() -> None:
    assert set(TABLES) == set(Settings.model_fields)
