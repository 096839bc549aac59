"""Configurations: frozen, checked once at the edge, written to and read from plain TOML and JSON."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from inspect import signature
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, create_model

from vitrail.errors import InputError, unknown

Rate = Annotated[float, Field(ge=0, lt=1)]


def _component(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, dict) and not isinstance(value.get("name"), str):
        raise InputError(f"{info.field_name}={value!r} has options and no name; give {info.field_name}.name too.")
    if isinstance(value, dict):
        value = {name: hashable(one) for name, one in value.items()}
    return value["name"] if isinstance(value, dict) and len(value) == 1 else value


def hashable(value: Any) -> Any:
    """A sequence as it was before it went through TOML or JSON."""
    return tuple(map(hashable, value)) if isinstance(value, list | tuple) else value


# A part by its name, or as a table of its name and options; see Registry.make.
Component = Annotated[str | dict[str, Any], BeforeValidator(_component)]


class Config(BaseModel):
    """A frozen set of named fields. Unknown names and wrong values become one sentence each."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise InputError(" ".join(_sentence(type(self), one) for one in error.errors())) from None

    # pydantic's own mark of an __init__ that only validates: a config within another is then validated as a part of
    # it, and what is wrong is named by its whole path.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def override(fields: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Dotted assignments such as ``optim.lr=3e-4`` laid over nested fields; values are read as TOML, else as text."""
    changed: dict[str, Any] = deepcopy(dict(fields))
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise InputError(f"{assignment!r} assigns nothing; write a field, '=' and a value, such as optim.lr=3e-4.")
        inner, leaf = table_of(changed, path.strip())
        value, before = toml_value(text.strip()), inner.get(leaf)
        if isinstance(before, dict) and isinstance(value, str):  # a name for options that were given before it
            value = {**before, "name": value}
        inner[leaf] = value
    return changed


def table_of(fields: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """The table that a field is in, given by its path, and what it is called there; tables on the way are made."""
    *parents, leaf = path.split(".")
    inner: Any = fields
    for parent in parents:
        outer, inner = inner, inner.setdefault(parent, {})
        if isinstance(inner, str):  # a part that was given by its name, and is now given options
            inner = outer[parent] = {"name": inner}
        if not isinstance(inner, dict):
            raise InputError(f"{path!r} cannot be set: {parent!r} is a value, not a table of fields.")
    return inner, leaf


def separated(text: str) -> list[str]:
    """Values that commas are between, but for those within brackets or quotes."""
    values, depth, quoted = [""], 0, ""
    for letter in text:
        if letter in "\"'" and quoted in ("", letter):
            quoted = "" if quoted else letter
        depth += (letter in "[{") - (letter in "]}") if not quoted else 0
        if letter == "," and not depth and not quoted:
            values.append("")
        else:
            values[-1] += letter
    return [value.strip() for value in values if value.strip()]


def assignments(settings: Mapping[str, Any] | Iterable[str]) -> list[str]:
    """Settings as ``override`` takes them: ``true`` for True, a list in brackets, text as it is."""
    if not isinstance(settings, Mapping):
        return list(settings)
    texts = {name: json.dumps(one) if isinstance(one, bool | list | tuple) else one for name, one in settings.items()}
    return [f"{name}={text}" for name, text in texts.items()]


def checked(config: type[Config], fields: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Some fields of a configuration, each by itself as the configuration would have it; others may be missing.

    True may stand for a number that follows from other fields, and is left for when they are there.
    """
    for name in fields:
        if name not in config.model_fields:
            raise unknown("field", f"{section}.{name}", [f"{section}.{known}" for known in config.model_fields])
    given = {name: value for name, value in fields.items() if not isinstance(value, bool)}
    types: dict[str, Any] = {
        name: (Annotated[config.model_fields[name].annotation, Field(), *config.model_fields[name].metadata], None)
        for name in given
    }
    inner: Any = create_model("Some", __base__=Config, **types)
    sections: dict[str, Any] = {section: (inner, ...)}
    whole: Any = create_model("Whole", __base__=Config, **sections)
    section_values = getattr(whole(**{section: given}), section)
    return {name: getattr(section_values, name) if name in given else value for name, value in fields.items()}


def parse_sides(text: str) -> tuple[int, int] | None:
    """384 or 224x384 as pixels down and across; None of anything else."""
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.isdecimal() and int(side) for side in sides):  # noqa: PLR2004
        return None
    return int(sides[0]), int(sides[-1])


def options(build: Callable[..., Any]) -> type[Config]:
    """The options that a function or class takes by name, as a configuration that checks them."""
    hints = get_type_hints(getattr(build, "__init__") if isinstance(build, type) else build, include_extras=True)  # noqa: B009
    fields: dict[str, Any] = {
        name: (hints.get(name, Any), ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in signature(build).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    return create_model("Options", __base__=Config, **fields)


def toml_value(text: str) -> Any:
    """A value as TOML has it, else as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _sentence(config: type[Config], error: Any) -> str:
    field = ".".join(str(part) for part in error["loc"])
    match error["type"]:
        case "value_error":
            return str(error["ctx"]["error"])
        case "extra_forbidden":
            return str(unknown("field", field, _siblings(config, field)))
        case "literal_error":
            return str(unknown(field, error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"])))
        case "missing":
            return f"field {field!r} is missing; give it a value."
    expected = error["msg"].removeprefix("Input should be ").removeprefix("Value should be ")
    return f"{field}={error['input']!r} does not fit; it should be {expected}."


def _siblings(config: type[BaseModel], field: str) -> list[str]:
    """The fields, by their whole path, that stand where the unknown one was put."""
    *parents, _ = field.split(".")
    for parent in parents:
        inner = config.model_fields[parent].annotation
        config = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else config
    return [".".join([*parents, name]) for name in config.model_fields]
