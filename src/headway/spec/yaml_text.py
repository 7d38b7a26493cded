"""YAML, as far as a job or a sweep needs it: text, numbers, booleans, null, lists, and mappings with text as keys.

Whoever wrote the file may be a stranger, or may have made a mistake. So everything has a limit, each before it costs
anything, and whatever is wrong is a YamlError that says where.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

MOST_BYTES = 256 * 1024  # of a file; a job has a few thousand
MOST_NODES = 20_000  # values in a file, with every alias (*name) written out
MOST_DEPTH = 50  # mappings and lists inside of each other
LARGEST = 2**63 - 1  # of whole numbers: what the tables of a record can hold
MOST_DIGITS = 100  # of a number, as it is written
_UNUSABLE = re.compile("[\0\ud800-\udfff]")  # no file name, argument or UTF-8 file can hold these
_TAG = "tag:yaml.org,2002:"


class YamlError(ValueError):
    """A text that is no YAML, or none that settings can be made of."""

    def __init__(self, problem: str, mark: yaml.Mark | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = None if mark is None else mark.line + 1
        self.column = None if mark is None else mark.column + 1
        snippet = None if mark is None else mark.get_snippet(indent=2)
        self._snippet = snippet if snippet and snippet.strip() != "^" else None  # a text that ends too soon has no line

    def in_file(self, path: object) -> str:
        """For a file: where, what, and the line with a caret below it."""
        where = f"{path}" if self.line is None else f"{path}, line {self.line}, column {self.column}"
        return f"{where}: {self.problem}" + (f"\n{self._snippet}" if self._snippet else "")


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; YamlError where there is none."""
    if len(text) > MOST_BYTES:
        raise YamlError(f"too large: at most {MOST_BYTES // 1024} KiB are allowed")
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        problem = error.problem or error.context or "it cannot be read"
        raise YamlError(f"not valid YAML: {problem}", error.problem_mark or error.context_mark) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(f"not valid YAML: character number {error.character} in line {line}: {error.reason}") from None
    except YamlError:
        raise
    except (ValueError, OverflowError):  # "\UFFFFFFFF"
        raise YamlError("not valid YAML: there is no character of this number", loader.get_mark()) from None


class _Loader(yaml.SafeLoader):
    """Refuses what would grow without end, and what no setting can be."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._num_nodes = 0
        self._sizes: dict[int, int] = {}
        """Of each node that is complete: how many there are in it, itself included."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        before = self._num_nodes
        if self.check_event(yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if id(node) not in self._sizes:
                raise YamlError(f"*{_name_at(mark)} stands inside of what it is an alias for", mark)
            self._num_nodes += self._sizes[id(node)]
        else:
            self._num_nodes += 1
            self._depth += 1
            if self._depth > MOST_DEPTH:
                raise YamlError(f"nested too deeply: at most {MOST_DEPTH} lists and mappings are allowed", mark)
            node = super().compose_node(parent, index)
            self._depth -= 1
            self._sizes[id(node)] = self._num_nodes - before
        if self._num_nodes > MOST_NODES:
            raise YamlError(f"too many values: at most {MOST_NODES:,} are allowed, aliases (*name) written out", mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        is_number = node.tag in (f"{_TAG}int", f"{_TAG}float")
        if is_number and len(node.value) > MOST_DIGITS:  # before it is computed
            raise YamlError(f"{_shown(node)} is too long for a number", node.start_mark)
        try:
            value = super().construct_object(node, deep)
        except YamlError:
            raise
        except (ValueError, ArithmeticError, LookupError):
            kind = node.tag.removeprefix(_TAG)
            raise YamlError(f"{_shown(node)} is not of the type !!{kind}", node.start_mark) from None
        if isinstance(value, str) and (found := _UNUSABLE.search(value)):
            raise YamlError(f"the character {found[0]!r} is not allowed in text", node.start_mark)
        if type(value) is int and abs(value) > LARGEST:
            raise YamlError(f"{_shown(node)} is too large: whole numbers go to {LARGEST} (2^63 - 1)", node.start_mark)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[str, yaml.Node] = {}
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == f"{_TAG}merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                what = f"{key_node.value!r} is not text" if isinstance(key_node, yaml.ScalarNode) else "is not text"
                raise YamlError(f"a key must be text: {what}; write it in quotes", key_node.start_mark)
            if key in seen:
                first = seen[key].start_mark.line + 1
                raise YamlError(f"the key {key!r} is there twice, first in line {first}", key_node.start_mark)
            seen[key] = key_node
        return super().construct_mapping(node, deep)


def _refuse(_: _Loader, node: yaml.Node) -> Any:
    raise YamlError(f"the type {node.tag.replace(_TAG, '!!')} is not allowed in settings", node.start_mark)


# A date is the text that it is written as, and there are no types but those of JSON.
_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in found if tag != f"{_TAG}timestamp"]
    for letter, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _name in ("binary", "timestamp", "omap", "pairs", "set"):
    _Loader.add_constructor(f"{_TAG}{_name}", _refuse)
_Loader.add_constructor(None, _refuse)


def _name_at(mark: yaml.Mark) -> str:
    found = re.match(r"\*(\S+?)(?=[\s,\]}]|$)", mark.buffer[mark.pointer :].rstrip("\0")) if mark.buffer else None
    return found[1] if found else "name"


def _shown(node: yaml.Node) -> str:
    text = node.value if isinstance(node, yaml.ScalarNode) else "this"
    return repr(text) if len(text) <= 40 else f"{text[:20]!r}... ({len(text):,} characters)"
