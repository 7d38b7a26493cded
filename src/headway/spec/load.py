"""A job from a YAML file and overrides, and one clear message for every mistake in them."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headway import workloads
from headway.errors import NotFound, SpecError
from headway.plural import counted
from headway.spec.command import Command, begins_with_placeholder
from headway.spec.job import Job
from headway.spec.workload import Workload
from headway.spec.yaml_text import MOST_BYTES, YamlError, parse_yaml
from headway.workloads.base import Settings

# Where a plain value may stand for a mapping, and the key that the value is then for.
SHORTHANDS = {
    "strategy": "kind",
    "site": "kind",
    "workload.model": "name",
    "workload.dataset": "name",
    "workload.optimizer": "name",
    "workload.optimizer.schedule": "kind",
    "cluster.chief": "count",
    "cluster.worker": "count",
    "cluster.ps": "count",
    "cluster.evaluator": "count",
}


def load_job(path: Path, overrides: Sequence[str] = ()) -> Job:
    """The validated job of a YAML file with `path.to.setting=value` overrides; SpecError names every mistake."""
    settings = read_settings(path, "job")
    for override in overrides:
        apply_override(settings, override)
    return parse_job(settings, origin=str(path))


def read_settings(path: Path, what: str) -> dict[str, Any]:
    """The mapping in a YAML file; `what`: a job or a sweep, for messages."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)  # no more: it may be a device that never ends
        if len(content) > MOST_BYTES:
            raise SpecError(f"{path}: too large for a {what} file: at most {MOST_BYTES // 1024} KiB are allowed")
        text = content.decode("utf-8")
    except FileNotFoundError:
        raise NotFound(f"no {what} file {path}; examples are in examples/") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not a text file in UTF-8 ({error.reason} at byte {error.start})") from None
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise SpecError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        settings = parse_yaml(text)
    except YamlError as error:
        raise SpecError(error.in_file(path)) from None
    if not isinstance(settings, dict):
        raise SpecError(f"{path}: a {what} is a mapping of settings; see examples/ and `headway schema`")
    return settings


def parse_job(settings: dict[str, Any], origin: str = "job") -> Job:
    try:
        return Job.model_validate(settings)
    except ValidationError as error:
        raise SpecError(explain(error, settings, origin), _unknown(error)) from None


def apply_override(settings: dict[str, Any], override: str) -> None:
    """`cluster.worker=3` into the settings, in place. The value is YAML, or begins with a placeholder of a command."""
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise SpecError(f"override {_shown(override)}: write path.to.setting=value, for example cluster.worker=3")
    try:
        value = text.strip() if begins_with_placeholder(text.strip()) else parse_yaml(text)
    except YamlError as error:
        raise SpecError(f"override {_shown(override)}: {error}") from None
    put(settings, path.strip(), value)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Every leaf of nested settings with its dotted path; an empty mapping is one."""
    if isinstance(value, Mapping) and value:
        return {
            name: leaf for key, inner in value.items() for name, leaf in flat(inner, f"{path}.{key}".strip(".")).items()
        }
    return {path: value}


def put(settings: dict[str, Any], path: str, value: Any) -> None:
    """A value at a dotted path, in place; a plain value on the way becomes the mapping that it stands for."""
    keys = path.split(".")
    place = settings
    for depth, key in enumerate(keys[:-1]):
        inner = place.get(key)
        if not isinstance(inner, dict):
            short = SHORTHANDS.get(".".join(keys[: depth + 1]))
            inner = {short: inner} if short and inner is not None else {}
            place[key] = inner
        place = inner
    place[keys[-1]] = value


# --- mistakes, explained -------------------------------------------------------------------------------------
def explain(error: ValidationError, settings: dict[str, Any], origin: str, root: type[BaseModel] = Job) -> str:
    """One line for each mistake: the setting's path, its value, what is allowed, the nearest valid name."""
    problems = dict.fromkeys(f"  {_problem(detail, settings, root)}" for detail in error.errors(include_url=False))
    count = counted(len(problems), "mistake")
    return "\n".join([f"{origin}: {count}, nothing was started", *problems])


def _unknown(error: ValidationError) -> list[str]:
    found = [detail for detail in error.errors(include_url=False) if detail["type"] == "extra_forbidden"]
    return [".".join(map(str, _location(detail))) for detail in found]


def _location(detail: ErrorDetails) -> list[int | str]:
    return [part for part in detail["loc"] if not _is_union_tag(part)]


def _problem(detail: ErrorDetails, settings: dict[str, Any], root: type[BaseModel]) -> str:
    location = _location(detail)
    path = ".".join(str(part) for part in location)
    value = _shown(detail["input"])
    message = detail["msg"].removeprefix("Value error, ")
    match detail["type"]:
        case "extra_forbidden":
            allowed = _keys_at(location[:-1], settings, root)
            known = f" Allowed here: {', '.join(allowed)}" if allowed else ""
            return f"{path}: unknown setting{_nearest(location[-1], allowed)}{known}"
        case "missing":
            return f"{path}: missing, and it has no default"
        case "literal_error":
            expected = str(detail.get("ctx", {}).get("expected", "")).replace("'", "").replace(" or ", ", ")
            allowed = expected.split(", ")
            return f"{path}: {value} is not allowed{_nearest(detail['input'], allowed)} Allowed: {', '.join(allowed)}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            (bound,) = detail.get("ctx", {}).values()
            how = detail["type"].replace("_equal", "").replace("_", " ")
            allowed_too = " or equal to" if detail["type"].endswith("equal") else ""
            return f"{path}: {value} is not allowed; it must be {how}{allowed_too} {_number(bound)}"
        case "too_long" | "too_short":
            found = detail.get("ctx", {})
            at = "most" if detail["type"] == "too_long" else "least"
            limit = found.get("max_length") if at == "most" else found.get("min_length")
            return f"{path}: {found.get('actual_length')} values; at {at} {limit} are allowed"
        case "model_type" | "model_attributes_type" | "dict_type":
            allowed = _keys_at(location, settings, root)
            known = f" with {', '.join(allowed)}" if allowed else ""
            return f"{path}: {value} is not allowed; give a mapping{known}"
        case "list_type" | "tuple_type":
            return f"{path}: {value} is not allowed; give a list, such as [1, 2]"
        case "value_error":
            # Our own validators name the setting themselves where it lies below the validated mapping.
            shown = "" if isinstance(detail["input"], (dict, BaseModel)) else f" {value}:"
            return f"{path}:{shown} {message}" if path else message
        case _:
            return f"{path}: {value}: {message[:1].lower()}{message[1:]}"


def _nearest(name: object, allowed: Sequence[str]) -> str:
    nearest = get_close_matches(str(name), allowed, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else "."


def _is_union_tag(part: object) -> bool:
    """Pydantic adds the tried member of a union to the path, such as `constrained-int` or `list[...]`."""
    return isinstance(part, str) and (part in ("int", "str", "float") or "[" in part or part.startswith("constrained-"))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _keys_at(location: Sequence[object], settings: Any, root: type[BaseModel]) -> list[str]:
    """The settings that exist at a path, found by following the models' annotations beside the given values."""
    model: type[BaseModel] | None = root
    is_free = False  # a mapping with keys of the user's own
    for key in location:
        if is_free:
            is_free = False
            settings = settings.get(key) if isinstance(settings, dict) else None
            continue
        if model is None or not isinstance(key, str) or key not in model.model_fields:
            return []
        annotation = model.model_fields[key].annotation
        is_free = typing.get_origin(annotation) is dict
        model = _model_in(annotation)
        settings = settings.get(key) if isinstance(settings, dict) else None
        if model is Workload and isinstance(settings, dict) and "command" in settings:
            model = Command
        if model is Settings:  # a workload's model or data set: its name decides which settings it has
            name = settings["name"] if isinstance(settings, dict) else str(settings)
            model = (workloads.model if key == "model" else workloads.dataset)(name).Settings
    return list(model.model_fields) if model and not is_free else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for member in typing.get_args(annotation):
        if found := _model_in(member):
            return found
    return None
