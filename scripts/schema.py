"""Generate the JSON schema of floodmark.yml from the configuration models."""

from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from fields import attribute_docstrings
from floodmark.config.models import Config
from floodmark.config.secret import Secret

_FILLED_IN = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"
_NUMBER = r"^[0-9.]+$"  # in quotes
_LEAVES: dict[Any, list[dict[str, Any]]] = {
    str: [{"type": "string"}],
    Secret: [{"type": "string"}],
    datetime: [{"type": "string"}],
    NoneType: [{"type": "null"}],
    int: [{"type": "integer"}],
    float: [{"type": "number"}],
    bool: [{"type": "boolean"}],
}
_LIMITS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "min_length": "minLength",
    "pattern": "pattern",
}


def config_schema() -> dict[str, Any]:
    """Return the schema of a whole configuration."""
    models: dict[str, dict[str, Any]] = {}
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "floodmark.yml"}
    return {**whole, **_model(Config, models), "$defs": dict(sorted(models.items()))}


def _model(kind: type[msgspec.Struct], models: dict[str, dict[str, Any]]) -> dict[str, Any]:
    meanings, hints = attribute_docstrings(kind), get_type_hints(kind, include_extras=True)
    fields = msgspec.structs.fields(kind)
    properties: dict[str, Any] = {
        field.encode_name: {
            "description": meanings[field.name],
            **_one_of(_choices(hints[field.name], models)),
        }
        for field in fields
    }
    required = [field.encode_name for field in fields if field.required]
    config = kind.__struct_config__
    if config.tag_field:
        properties = {config.tag_field: {"const": config.tag}, **properties}
        required.insert(0, config.tag_field)
    return {
        "description": " ".join((kind.__doc__ or "").split()),
        # An empty value means no keys.
        "type": "object" if required else ["object", "null"],
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _choices(kind: Any, models: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the schemas of YAML values for this type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return [choice for one in arguments for choice in _choices(one, models)]
    if origin is Annotated:
        return [_limited(choice, arguments[1:]) for choice in _choices(arguments[0], models)]
    if origin is Literal:
        # Some editors read `null` and `off` without quotes as YAML 1.1 does.
        read = {"null": None, "off": False}
        values = [*arguments, *(read[name] for name in arguments if name in read)]
        return [{"enum": values}]
    if origin is dict:
        values_of = _one_of(_choices(arguments[1], models))
        return [{"type": ["object", "null"], "additionalProperties": values_of}]
    if origin in (list, tuple):
        return [{"type": "array", "items": _one_of(_choices(arguments[0], models))}]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind.__name__ not in models:
            models[kind.__name__] = {}
            models[kind.__name__] = _model(kind, models)
        return [{"$ref": f"#/$defs/{kind.__name__}"}]
    return _LEAVES[kind]


def _limited(choice: dict[str, Any], metas: tuple[Any, ...]) -> dict[str, Any]:
    names = {**_LIMITS, "min_length": "minItems"} if choice["type"] == "array" else _LIMITS
    limits = {
        name: getattr(meta, key)
        for meta in metas
        for key, name in names.items()
        if getattr(meta, key) is not None
    }
    return {**choice, **limits}


def _one_of(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a schema for any of these, or for a variable of the environment."""
    kinds = {str(choice.get("type", "")) for choice in choices if "pattern" not in choice}
    nested = all({"$ref", "items", "additionalProperties"} & {*choice} for choice in choices)
    if not nested and "string" not in kinds:
        number = f"|{_NUMBER}" if kinds & {"integer", "number"} else ""
        choices = [*choices, {"type": "string", "pattern": _FILLED_IN + number}]
    return choices[0] if len(choices) == 1 else {"anyOf": choices}
