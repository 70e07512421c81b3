"""Build models from parsed YAML; errors name the exact key."""

import re
from datetime import date, datetime
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from floodmark.config.secret import Secret
from floodmark.errors import ConfigError, UsageError
from floodmark.model.timestamps import as_utc, parse_timestamp

_LONG_NUMBER = 256  # bits
_ON = {"on", "yes", "true", "1"}


def build(kind: Any, raw: Any, path: str) -> Any:
    """Build a value of the given type; ConfigError names the path and the nearest known key."""
    if _is_struct(kind):
        return _build_struct(kind, raw, path)
    if get_origin(kind) is dict:
        value_kind = get_args(kind)[1]
        return {
            (name := _name(key, path)): build(value_kind, value, f"{path}.{name}")
            for key, value in _mapping(raw, path).items()
        }
    if get_origin(kind) is tuple and _is_struct(entry := get_args(kind)[0]):
        if not isinstance(raw, list):
            raise ConfigError(f"{path}: expected a list, got {_kind(raw)}")
        return tuple(_build_entry(entry, one, f"{path}[{n}]") for n, one in enumerate(raw))
    choices = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    if raw is False and Literal["off"] in choices:
        return "off"  # written without quotes, as in the documentation
    if Literal["off"] in choices and (raw is True or str(raw).lower() in _ON):
        raise ConfigError(
            f"{path}: expected keys and values, or 'off'", hint="write 'tls: {}' to encrypt"
        )
    structs = [choice for choice in choices if _is_struct(choice)]
    if len(structs) > 1:
        return _build_tagged(structs, _mapping(raw, path), path)
    if structs and isinstance(raw, dict):
        return _build_struct(structs[0], raw, path)
    if structs and raw is None:
        raise ConfigError(
            f"{path}: expected keys and values, got nothing", hint="write '{}', or remove it"
        )
    return _build_leaf(kind, raw, path)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _build_struct(kind: type[msgspec.Struct], raw: Any, path: str) -> Any:
    given = _mapping(raw, path)
    config = kind.__struct_config__
    tag = {config.tag_field} if config.tag_field else set()
    hints, required = _fields(kind)
    for key in given:
        if key not in hints and key not in tag:
            raise _unknown(path, "key", str(key), [*tag, *hints])
    for name in required:
        if name not in given:
            raise ConfigError(f"{path}: {name!r} is missing")
    values = {
        key: build(hints[key], value, f"{path}.{key}" if path != "configuration" else key)
        for key, value in given.items()
        if key not in tag
    }
    return kind(**values)


def _build_entry(kind: type[msgspec.Struct], raw: Any, path: str) -> Any:
    """Build an entry of a list; its own checks do not know where it stands."""
    try:
        return _build_struct(kind, raw, path)
    except ConfigError as error:
        if not error.message.startswith(path):
            error.message = f"{path}: {error.message}"
        raise


@cache  # a configuration may list thousands of tables
def _fields(kind: type[msgspec.Struct]) -> tuple[dict[str, Any], list[str]]:
    """Return the types of a model's fields, and the names of the required ones."""
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    return get_type_hints(kind, include_extras=True), required


def _build_tagged(kinds: list[type[msgspec.Struct]], raw: dict[str, Any], path: str) -> Any:
    field = kinds[0].__struct_config__.tag_field
    by_tag = {str(kind.__struct_config__.tag): kind for kind in kinds}
    if field not in raw:
        raise ConfigError(f"{path}: {field!r} is missing", hint="one of " + ", ".join(by_tag))
    tag = str(raw[field])
    if tag not in by_tag:
        raise _unknown(path, str(field), tag, list(by_tag))
    return _build_struct(by_tag[tag], raw, path)


def _build_leaf(kind: Any, raw: Any, path: str) -> Any:
    if kind is datetime:
        return _moment(raw, path)
    if datetime in get_args(kind):
        return raw if raw == "all" else _moment(raw, path, "'all' for every row")
    if Secret in get_args(kind):
        if raw is not None and not isinstance(raw, str):
            raise ConfigError(f"{path}: expected text", hint="put it in quotes")
        _refuse_invalid_text(raw, path)
        return None if raw is None else Secret(raw)
    for text in raw if isinstance(raw, list) else [raw]:
        _refuse_invalid_text(text, path)
    if raw is None and get_origin(kind) is Literal and "null" in get_args(kind):
        return "null"  # written without quotes, as in the documentation
    if raw is False and get_origin(kind) is Literal and "off" in get_args(kind):
        return "off"  # YAML 1.1 reads `off` as false
    try:
        return msgspec.convert(raw, kind, strict=not isinstance(raw, str))
    except msgspec.ValidationError as error:
        parts = raw if isinstance(raw, list) else [raw]
        odd = any(part is None or isinstance(part, (int, float, date)) for part in parts)
        unquoted = odd and "`str" in str(error)
        raise ConfigError(
            f"{path}: {error}: {_shown(raw)}", hint="put it in quotes" if unquoted else None
        ) from error


def _moment(raw: Any, path: str, otherwise: str = "") -> datetime:
    """Parse a date or a date and time; `otherwise` describes other allowed values."""
    if isinstance(raw, (dict, list)):
        raise ConfigError(f"{path}: expected a date or time, got {_kind(raw)}")
    try:
        return as_utc(raw) if isinstance(raw, datetime) else parse_timestamp(str(raw))
    except UsageError as error:
        hint = f"{error.hint}, or as {otherwise}" if otherwise else error.hint
        raise ConfigError(f"{path}: {error.message}", hint=hint) from error
    except OverflowError as error:
        hint = f"write {otherwise}" if otherwise else None
        raise ConfigError(f"{path}: {raw} is out of range", hint=hint) from error


def _mapping(raw: Any, path: str) -> dict[str, Any]:
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        # Not the value itself: a connection written as one line contains its password.
        raise ConfigError(f"{path}: expected keys and values, got {_kind(raw)}")
    return raw


def _name(key: Any, path: str) -> str:
    """Return a key that is text: YAML reads `1.10` as 1.1 and `no` as false."""
    if not isinstance(key, str):
        raise ConfigError(f"{path}: {_shown(key)} is not a valid name", hint="put it in quotes")
    _refuse_invalid_text(key, path)
    if not key.isprintable():
        raise ConfigError(f"{path}: {key!r} is not a valid name")
    return key


def _refuse_invalid_text(text: Any, path: str) -> None:
    """Raise ConfigError for text with NUL or unpaired surrogates."""
    if isinstance(text, str) and re.search("[\0\ud800-\udfff]", text):
        raise ConfigError(f"{path}: the text contains an invalid character")


def _shown(raw: Any) -> str:
    if isinstance(raw, (dict, list)):
        return _kind(raw)
    if isinstance(raw, int) and raw.bit_length() > _LONG_NUMBER:
        return "a very long number"
    return f"{raw!r}"


def _kind(raw: Any) -> str:
    kinds = ((dict, "keys and values"), (list, "a list"), (str, "text"))
    return next((name for kind, name in kinds if isinstance(raw, kind)), "a single value")


def _unknown(path: str, what: str, given: str, known: list[str]) -> ConfigError:
    given, colon, _ = given.partition(":")
    if colon:  # the rest may be a password
        message = f"{path}: unknown {what} {given + colon!r}"
        return ConfigError(message, hint="put a space after ':'")
    nearest = get_close_matches(given.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "one of " + ", ".join(sorted(known))
    return ConfigError(f"{path}: unknown {what} {given!r}", hint=hint)
