"""A page in one of its forms; the suffix of the file says which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headway.errors import HeadwayError, SpecError
from headway.record.files import write_atomically
from headway.report.folders import check_place
from headway.report.page import Page


def _html(page: Page, path: Path) -> None:
    from headway.report.html import html

    write_atomically(path, html(page))


def _markdown(page: Page, path: Path) -> None:
    from headway.report.markdown import markdown

    write_atomically(path, markdown(page))


def _csv(page: Page, path: Path) -> None:
    from headway.report.files import write_csv

    write_csv(page, path)


def _parquet(page: Page, path: Path) -> None:
    from headway.report.files import write_parquet

    write_parquet(page, path)


def _notebook(page: Page, path: Path) -> None:
    from headway.report.notebook import notebook

    write_atomically(path, notebook(page))


FORMS: dict[str, Callable[[Page, Path], None]] = {
    ".html": _html,
    ".md": _markdown,
    ".csv": _csv,
    ".parquet": _parquet,
    ".ipynb": _notebook,
}
FOLDERS = (".csv", ".parquet")


def check_form(path: Path) -> None:
    """A mistake in the file's name, and what must not be written over, is said before the work."""
    if path.suffix.lower() not in FORMS:
        raise SpecError(f"{path}: the suffix says the form of a report: {', '.join(FORMS)}")
    if not path.parent.is_dir():
        raise SpecError(f"{path}: there is no folder {path.parent}")
    if path.suffix.lower() in FOLDERS:
        check_place(path)
    elif path.is_dir():
        raise SpecError(f"{path}: is a folder, and a report of this form is a file; give another name")
    if path.suffix.lower() == ".html":
        from headway.report.html import plotly

        plotly()


def write(page: Page, path: Path) -> None:
    check_form(path)
    try:
        FORMS[path.suffix.lower()](page, path)
    except OSError as error:
        raise HeadwayError(f"{path}: cannot be written ({error.strerror})") from None
