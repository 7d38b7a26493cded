"""The page as one HTML file that needs nothing else: no network, no server, no other file.

A run folder is untrusted input. Whatever comes from one is escaped here, or lies in the page as packed text that no
parser of HTML looks into; and the page's own policy lets no script run but ours and Plotly's, by their checksums.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from headway.errors import NotFound
from headway.report.happened import shown
from headway.report.page import Page
from headway.report.parts import asset, body, navigation
from headway.report.run_entries import escaped

SCRIPTS = ("charts.js", "timeline.js", "page.js")  # in this order: they are one script, and share their names


def html(page: Page) -> str:
    script, library = _script(), plotly()
    return Template(asset("page.html")).substitute(
        title=escaped(page["title"]),
        css=asset("report.css"),
        hashes=f"'sha256-{_checksum(script)}' 'sha256-{_checksum(library)}'",
        navigation=navigation(page),
        body=body(page),
        data="\n".join(_blocks(page, library)),
        script=script,
    )


def _script() -> str:
    parts = "\n".join(asset(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def plotly() -> str:
    """The charts' library, out of its Python package."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise NotFound(
            "HTML reports need the package plotly: pip install 'headway[report]' (.md, .csv and .parquet do not)"
        )
    return (Path(found.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def _blocks(page: Page, library: str) -> list[str]:
    """Packed data: what the charts are made of, and each run's details apart, so that they are unpacked when wanted."""
    charts = {
        "ids": page["ids"],
        "names": page["names"],
        "states": {run["id"]: run["figures"]["state"] for run in page["runs"] if run.get("figures")},
        "collections": [
            {"id": one["id"], "groups": one["groups"], "charts": [*one["charts"], *one["shapes"]]}
            for one in page["collections"]
        ],
    }
    curves = {run["id"]: run["curves"] for run in page["runs"] if run.get("curves")}
    blocks = [_block("plotly", library), _block("data-page", charts), _block("data-curves", curves)]
    for run in page["runs"]:
        if run.get("figures"):
            wanted = ("nodes", "servers", "staleness", "num_ps", "strategy")
            figures = {key: run["figures"].get(key) for key in wanted}
            figures["is_program"] = run["figures"].get("command") is not None
            details = {key: run[key] for key in ("name", "timeline", "step_times")}
            blocks.append(_block(f"data-{run['id']}", {**details, "events": shown(run["events"]), "figures": figures}))
    return blocks


def _block(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), allow_nan=False)
    packed = base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>'


def _checksum(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
