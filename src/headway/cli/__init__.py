"""The command line. One short function per command; everything heavy is imported inside it, so that `headway --help`
loads neither TensorFlow nor DuckDB nor the spec."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from headway import __version__
from headway.cli import bench, data, figures, findings, init, inspect, launch, report, setup, sweeps, training
from headway.cli.visible import guarded
from headway.errors import INTERRUPTED_EXIT_CODE, HeadwayError, StorageError

EPILOG = """
Exit codes: 0 success; 1 other error; 2 invalid job or command line; 3 not found; 4 data cannot be had;
5 the site cannot give what is asked; 6 the run failed; 7 damaged or newer file; 8 the run is (not) running;
9 a folder cannot be written (disk full, read-only); 130 stopped before the end.
"""

app = typer.Typer(
    help="Run, watch, measure and explain distributed deep-learning training.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def show_version(asked: bool) -> None:
    if asked:
        print(f"headway {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=show_version)] = False,
) -> None:
    """Options before any command."""
    del version  # its callback has done it


training.add_to(app)
launch.add_to(app)
inspect.add_to(app)
findings.add_to(app)
report.add_to(app)
setup.add_to(app)
init.add_to(app)
data.add_to(app)
figures.add_to(app)
app.command()(bench.bench)
sweeps.add_to(app)


def main() -> None:
    """The command, with nothing printed that would steer a terminal."""
    with guarded():
        _main()


def _main() -> None:
    """A user's mistake gives its message and an exit code; a traceback is a bug of ours."""
    try:
        app(prog_name="headway")
    except HeadwayError as error:
        print(f"headway: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_EXIT_CODE)
    except BrokenPipeError:  # `headway runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a file that cannot be read or written, of no run
        from headway.record.storage import in_words

        if (said := in_words(error)) is None:
            raise
        print(f"headway: {said}", file=sys.stderr)
        sys.exit(StorageError.exit_code)
