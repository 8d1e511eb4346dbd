"""One TOML file, one table a part: load it, override it, and refuse what is not understood."""

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from fedslice.core.errors import UsageError

Tables = dict[str, Any]
_ROOT = Path(__file__).resolve().parents[2]
# All tables that there are: coordinator and nodes each know some of them, and neither all.
TABLES = (
    "federation", "task", "partition", "selection", "slicing", "guard", "aggregation", "optimizer", "training",
    "network", "nodes",
)  # fmt: skip
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
TableT = TypeVar("TableT", bound="Table")


class Table(BaseModel):
    """A table of the config. Frozen; unknown keys and wrong types are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def load(path: Path, overrides: Sequence[str] = ()) -> Tables:
    """Read a TOML file and apply `--set key.key=value` overrides in order.

    Raises:
        UsageError: The file cannot be read or is not TOML, or an override is malformed.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: cannot read the config ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    for text in overrides:
        override(tables, text)
    return tables


def located(name: str) -> Path:
    """Return the path of a file: a relative one is looked for here, and then beside this code."""
    path = Path(name)
    return next((p for p in (path, _ROOT / path) if _is_file(p)), path)


def override(tables: Tables, text: str) -> None:
    """Set one key in place from `table.key=value`; the value is TOML, or else a bare string.

    Raises:
        UsageError: The text has no `=`, or a key on the way is not a table.
    """
    if len(text.splitlines()) > 1:
        raise UsageError(f"--set {text!r}: write it on one line")
    key, found, raw = text.partition("=")
    *parents, last = key.strip().split(".")
    if not found or not last or not all(parents):
        raise UsageError(f"--set {text}: write it as table.key=value, for example --set federation.rounds=10")
    table = tables
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {text}: {parent} holds a value, not a table")
    try:
        parsed = tomllib.loads(f"value = {raw.strip()}")
    except (ValueError, RecursionError):
        parsed = {}
    table[last] = parsed["value"] if len(parsed) == 1 else raw.strip()


def validate(model: type[TableT], tables: Mapping[str, Any], source: str) -> TableT:
    """Check tables against a model.

    Args:
        model: The model that knows the tables.
        tables: What the file and its overrides say.
        source: The name of the file, for the message.

    Raises:
        UsageError: Names every key that is wrong, what is wrong, and the nearest right key.
    """
    try:
        return model.model_validate(tables)
    except ValidationError as error:
        lines = [f"{source}: {_explain(model, item)}" for item in error.errors()]
        raise UsageError("\n".join(lines)) from None


def dumps(tables: Mapping[str, Any]) -> str:
    """Return tables as TOML: values first, then sub-tables, so that `load` reads the same back."""
    lines: list[str] = []
    _write(lines, (), tables)
    return "\n".join(lines).strip() + "\n"


def _write(lines: list[str], place: tuple[str, ...], table: Mapping[str, Any]) -> None:
    for key, value in table.items():
        if value is not None and not _is_tables(value):
            lines.append(f"{_key(key)} = {_toml(value)}")
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner = (*place, _key(key))
            lines += ["", f"[{'.'.join(inner)}]"]
            _write(lines, inner, value)
        elif _is_tables(value):
            inner = (*place, _key(key))
            for item in value:
                lines += ["", f"[[{'.'.join(inner)}]]"]
                _write(lines, inner, item)


def _is_tables(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _toml(key)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON's scalars and strings are TOML's, but for DEL; TOML's inf and nan are Python's.
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _explain(model: type[BaseModel], item: Any) -> str:
    """Return one sentence for one pydantic error."""
    key = ".".join(_keys(model, item["loc"]))
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(item["loc"][-1]), known := _fields_at(model, item["loc"][:-1]), 1, 0.5)
        return f"unknown key {key}; " + (f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}")
    if item["type"] == "union_tag_invalid":
        context = item["ctx"]
        tags = [tag.strip(" '") for tag in context["expected_tags"].split(",")]
        near = difflib.get_close_matches(str(context["tag"]), tags, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(tags)}"
        return f"{key}.{context['discriminator'].strip(chr(39))} = {context['tag']!r} is not known; {hint}"
    is_table = item["type"] in ("model_type", "model_attributes_type", "dict_type", "dataclass_type")
    message = "a table is expected" if is_table else item["msg"].removeprefix("Value error, ")
    given = "" if item["type"] in ("missing", "value_error") else f" (given: {item['input']!r})"
    return f"{key}: {message}{given}" if key else message


def _keys(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """Return a place as the user wrote it: pydantic puts the tags of unions between the keys."""
    keys: list[str] = []
    for i, part in enumerate(place):
        tagged = isinstance(part, str) and i > 0 and part not in _fields_at(model, place[:i])
        if not (tagged and i < len(place) - 1):
            keys.append(str(part))
    return keys


def _fields_at(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """Return the keys known at a place, following sub-tables and the tags of unions."""
    found: list[Any] = [model]
    for part in place:
        inner = [m.model_fields[part].annotation for m in found if isinstance(part, str) and part in m.model_fields]
        tagged = [m for m in found if part in _tags(m)]
        found = [leaf for annotation in inner for leaf in _models(annotation)] or tagged or found
    return [name for m in found for name in m.model_fields]


def _tags(model: type[BaseModel]) -> list[str]:
    return [value for field in model.model_fields.values() for value in get_args(field.annotation) if isinstance(value, str)]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Where a run's config is and what overrides it: all that a Flower app is told, so it is plain text."""

    config: str
    overrides: tuple[str, ...] = ()
    data: str = ""
    out: str = ""

    @classmethod
    def of(cls, run_config: Mapping[str, Any]) -> "RunConfig":
        """Read the keys of `[tool.flwr.app.config]`."""
        lines = str(run_config.get("set", "")).splitlines()
        overrides = tuple(line for line in lines if line.strip())
        return cls(str(run_config["config"]), overrides, str(run_config.get("data", "")), str(run_config.get("out", "")))

    def as_run_config(self) -> dict[str, str]:
        """Return what `of` reads back."""
        return {"config": self.config, "set": "\n".join(self.overrides), "data": self.data, "out": self.out}

    @property
    def source(self) -> str:
        """Return what messages call the config."""
        return self.config

    def tables(self) -> Tables:
        """Return the tables. A relative path is looked for here, and then beside this code.

        Raises:
            UsageError: See `load`.
        """
        return load(located(self.config), self.overrides)

    def section(self, model: type[TableT]) -> TableT:
        """Return those tables that a model knows, checked; the others are for somebody else.

        Raises:
            UsageError: See `load` and `validate`.
        """
        tables = self.tables()
        for name in tables.keys() - set(TABLES):
            near = difflib.get_close_matches(name, TABLES, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(TABLES)}"
            raise UsageError(f"{self.source}: unknown key {name}; {hint}")
        return self._checked(model, {name: tables[name] for name in model.model_fields if name in tables})

    def whole(self, model: type[TableT]) -> TableT:
        """Return all tables, checked against a model that should know every one.

        Raises:
            UsageError: See `load` and `validate`.
        """
        return self._checked(model, self.tables())

    def _checked(self, model: type[TableT], tables: Tables) -> TableT:
        return validate(model, fitted(model, tables, self.overrides), self.source)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file could have: reading it says so
        return False


def fitted(model: type[BaseModel], tables: Tables, overrides: Sequence[str]) -> Tables:
    """Return tables with the variant of each that a user means.

    A table that does not name its variant is the default one. Where an override names another than the file, what
    the file says of the old one alone is left out: with `alpha` in it, `--set partition.scheme=iid` would otherwise
    fail on a key that nobody asked for.
    """
    overridden = {text.partition("=")[0].strip() for text in overrides}
    kept = dict(tables)
    for name, field in model.model_fields.items():
        tag, table = field.discriminator, tables.get(name)
        if not isinstance(tag, str) or not isinstance(table, dict):
            continue
        table = {tag: getattr(field.get_default(call_default_factory=True), tag), **table}
        if f"{name}.{tag}" in overridden:
            chosen = [m for m in _models(field.annotation) if table[tag] in get_args(m.model_fields[tag].annotation)]
            known = {key for variant in chosen for key in variant.model_fields} or set(table)
            table = {k: v for k, v in table.items() if k in known or f"{name}.{k}" in overridden}
        kept[name] = table
    return kept
