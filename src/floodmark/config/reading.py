"""Parse YAML strictly; errors never show a value, which may be a password."""

from typing import Any

import yaml

from floodmark.errors import ConfigError

_MOST_VALUES = 1_000_000


def parse_yaml(text: str, source: str) -> Any:
    """Parse one YAML document; ConfigError names the source and the line."""
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > _MOST_VALUES:
            raise ConfigError(
                f"{source} expands to more than {_MOST_VALUES:,} values",
                hint="use fewer nested aliases ('*name')",
            )
        _refuse_repeated_keys(node, source)
        return loader.construct_document(node)
    except yaml.constructor.ConstructorError as error:
        # Its text shows the tag, and a value that starts with '!' may be a password.
        raise ConfigError(
            f"{source}{_line(error.problem_mark)}: cannot parse this value",
            hint="put it in quotes",
        ) from None
    except yaml.MarkedYAMLError as error:
        place = f"{source}{_line(error.problem_mark)}"
        raise ConfigError(f"{place}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise ConfigError(f"{source} is nested too deeply, or contains itself") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Loader(yaml.CSafeLoader):
    """Adds the line to errors of values such as the date 2025-13-45."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError):
            raise yaml.constructor.ConstructorError(None, None, None, node.start_mark) from None


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Count the values after expanding aliases; visit each node once."""
    if id(node) not in known:
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


def _refuse_repeated_keys(node: yaml.Node, source: str) -> None:
    """Raise ConfigError for duplicate keys, which YAML would silently overwrite."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, source)
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ConfigError(f"{source}{_line(key.start_mark)}: duplicate key {key.value!r}")
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            _refuse_repeated_keys(value, source)


def _line(mark: Any) -> str:
    return f" line {mark.line + 1}" if mark else ""
