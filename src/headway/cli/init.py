"""Commands that write a beginning for code of one's own: init model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.errors import HeadwayError

init_app = typer.Typer(help="Write a working example to start from.", no_args_is_help=True, rich_markup_mode=None)
TEMPLATES = Path(__file__).parent / "templates"
MODEL = ("my_model.py", "my_model.yaml", "test_my_model.py")


def add_to(app: typer.Typer) -> None:
    app.add_typer(init_app, name="init")


@init_app.callback()
def init() -> None:
    """Write a working example to start from."""


@init_app.command()
def model(
    folder: Annotated[Path, typer.Argument(help="Where to; made if it is not there.", show_default=False)] = Path(),
) -> None:
    """A model of your own: the model, a job that trains it, and its test. Nothing is overwritten."""
    there = [name for name in MODEL if (folder / name).exists()]
    if there:
        raise HeadwayError(
            f"{folder.absolute()} has {', '.join(there)} already; nothing was written. Name another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in MODEL:
            (folder / name).write_bytes((TEMPLATES / name).read_bytes())
    except OSError as error:
        raise HeadwayError(f"{folder.absolute()} cannot be written to: {error.strerror or error}") from None
    print(f"wrote {', '.join(MODEL)} to {folder.absolute()}\n\nnext")
    if folder.absolute() != Path.cwd():
        print(f"  cd {folder}")
    print("  headway run my_model.yaml              # trains it: a server and two tasks, some seconds")
    print("  python -m pytest test_my_model.py      # tests it (pip install pytest)")
    print("then change my_model.py; what may stand in it: docs/own-models.md")
