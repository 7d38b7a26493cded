"""The user's own model: `workload.model: mypackage.mymodule:build`.

The module is a model file as base.py describes it, of which only the function after the colon is required:
    Settings     default: it has none but its name
    TYPICAL      default: None; only headway.testing asks for it
    check        default: everything can be learnt
    loss         default: cross entropy where the data has classes, else the squared error
    correct      default: whether the largest logit is the label's where the data has classes, else None
Importing it runs the user's code. So launcher and tasks do that, and nobody who only reads a run's record.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from headway.workloads import objectives
from headway.workloads.base import DataInfo, Settings

NAME = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<function>[^\W\d]\w*)")


def is_own(name: str) -> bool:
    """Whether a model's name means a function of the user's, not one of the models that Headway knows by name."""
    return ":" in name


def look_in(folder: Path) -> None:
    """From now on, modules are looked for in this folder first; tasks have it in their PYTHONPATH."""
    sys.path[:] = [str(folder), *(place for place in sys.path if place != str(folder))]
    importlib.invalidate_caches()


@dataclass(frozen=True)
class OwnModel:
    """A user's model file with its defaults filled in."""

    Settings: type[Settings]
    TYPICAL: DataInfo | None
    correct: Callable[[Any, Any], Any] | None
    check: Callable[[Any, DataInfo], None]
    build: Callable[..., Any]
    loss: Callable[[Any, Any], Any]


def own_model(name: str, data: DataInfo | None = None) -> OwnModel:
    """The model of that name, for this data: loss and accuracy follow from it where the file has none of its own.
    ValueError says what is wrong with the name, the file or what is in it."""
    found = NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not a model; write package.module:function, for example my_model:build")
    module = _imported(found["module"])
    classifies = data is not None and data.classes is not None
    contents = vars(module)
    settings = contents.get("Settings", Settings)
    if not (isinstance(settings, type) and issubclass(settings, Settings)):
        raise ValueError(
            f"{_place(module)}: Settings must be a class that derives from headway.workloads.base.Settings"
        )
    typical = contents.get("TYPICAL")
    if not (typical is None or isinstance(typical, DataInfo)):
        raise ValueError(f"{_place(module)}: TYPICAL must be a headway.workloads.base.DataInfo")
    build = _function(module, found["function"], "features, settings, data, run")
    loss: Any = objectives.cross_entropy if classifies else objectives.squared_error
    correct: Any = objectives.is_largest if classifies else None
    if "loss" in contents:
        # Whoever has a loss of their own may have answers that are no logits: then they say themselves what is right.
        loss, correct = _function(module, "loss", "outputs, labels"), None
    if contents.get("correct") is not None:
        correct = _function(module, "correct", "outputs, labels")
    elif "correct" in contents:
        correct = None
    check = _checked(module) if "check" in contents else _everything
    return OwnModel(settings, typical, correct, check, build, loss)


def source_hash(name: str) -> str:
    """Of the file that an own model is in."""
    return hashlib.sha256(Path(str(_imported(name.partition(":")[0]).__file__)).read_bytes()).hexdigest()


def _everything(settings: Any, data: DataInfo) -> None:
    """There is no data that it could not learn."""


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):  # one that the user's file imports
            raise ValueError(_raised(error, name, "when it is imported")) from None
        raise ValueError(
            f"no module {error.name!r}; looked in {sys.path[0] or Path.cwd()} and among the installed packages. "
            "Call headway in the folder that holds it, or name that folder: workload.code"
        ) from None
    except (Exception, SystemExit) as error:  # whatever a user's file may do
        raise ValueError(_raised(error, name, "when it is imported")) from None


def _raised(error: BaseException, module: str, when: str) -> str:
    """An error of the user's code, with the last line of that code which led to it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: {error.msg}"
    package = module.partition(".")[0]
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ]
    place = f"{frames[-1][0]}, line {frames[-1][1]}" if frames else module
    return f"{place}: {type(error).__name__}: {error} ({when})"


def _place(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or module.__name__)  # a folder without __init__.py has none


def _function(module: ModuleType, name: str, arguments: str) -> Callable[..., Any]:
    """A function of the user's that can be called with these arguments."""
    found: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(found):
        functions = [
            one
            for one, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and one[0] != "_"
        ]
        nearest = get_close_matches(name, functions, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
        raise ValueError(f"{_place(module)} has no function {name!r}{hint} It has: {', '.join(functions) or 'none'}")
    signature = inspect.signature(found)
    try:
        signature.bind(*arguments.split(", "))
    except TypeError:
        raise ValueError(f"{_place(module)}: {name}{signature} cannot be called as {name}({arguments})") from None
    return found


def _checked(module: ModuleType) -> Callable[[Any, DataInfo], None]:
    check = _function(module, "check", "settings, data")

    def checked(settings: Any, data: DataInfo) -> None:
        try:
            check(settings, data)
        except ValueError:  # what it says is meant for whoever wrote the job
            raise
        except Exception as error:
            raise ValueError(_raised(error, module.__name__, "when it checks the data")) from None

    return checked
