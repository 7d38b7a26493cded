"""`1 run`, `2 runs`: wherever a count stands before a noun."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.plural import counted

PACKAGE = Path(__file__).parents[2] / "src" / "headway"
NOUNS = (
    "runs|trials|tasks|steps|nodes|servers|workers|hosts|cores|updates|gradients|examples|records|shards|findings|"
    "sweeps|repeats|restarts|launches|epochs|pairs|threads|ports|files|folders|mistakes|classes|values|points|events|"
    "rollbacks|batches|checkpoints|processes|ranks|attempts|vCPUs"
)
FOLLOWS = re.compile(
    rf"^ (?:(?:more|other|such|training|global|measured|emulated|marked|test|own) )*({NOUNS})(?![\w/])"
)
VERBS = {"{folder.name} runs"}


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "run", "1 run"),
        (0, "run", "0 runs"),
        (2, "training task", "2 training tasks"),
        (60000, "example", "60,000 examples"),
        (1, "epoch", "1 epoch"),
        (1.0, "epoch", "1 epoch"),
        (0.5, "epoch", "0.5 epochs"),
        (2, "batch", "2 batches"),
        (3, "class", "3 classes"),
        (2, "entry", "2 entries"),
        (2, "day", "2 days"),
    ],
)
def test_a_noun_follows_its_count(number: float, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_a_plural_may_be_given() -> None:
    assert counted(1, "pair of trials", "pairs of trials") == "1 pair of trials"
    assert counted(2, "pair of trials", "pairs of trials") == "2 pairs of trials"


def uncounted(path: Path) -> Iterator[str]:
    """F-strings that put a value before a plural noun without `counted`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.IfExp) and any(isinstance(part, ast.Compare) for part in ast.walk(node.test))
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr) or id(node) in guarded:
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            match = FOLLOWS.match(str(text.value))
            source = ast.unparse(value.value)
            is_words = isinstance(value.value, ast.Call) or source.isupper()  # percent(...) of the updates; LIMIT steps
            is_mean = value.format_spec is not None and re.search(r"\.\d[fg]", ast.unparse(value.format_spec))
            if match and (not is_words or source.startswith("len(")) and not is_mean:
                found = f"{{{source}}} {match[1]}"
                if found not in VERBS:
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}: {found}"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_count_stands_before_a_plural_that_it_may_not_agree_with(path: Path) -> None:
    assert list(uncounted(path)) == []
