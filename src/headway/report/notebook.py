"""The page as a Jupyter notebook: the same findings and tables, and the data itself to go on with."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

from headway.report.files import tables
from headway.report.markdown import markdown
from headway.report.page import Page

UNPACK = '''\
# The report's tables, packed into this notebook: nothing else is needed.
import base64, gzip, json

PACKED = """{packed}"""
tables = json.loads(gzip.decompress(base64.b64decode(PACKED)))
charts = tables.pop("charts")
print({{name: len(rows) for name, rows in tables.items()}})'''
FRAMES = """\
# As data frames, where pandas is installed; `tables` is a plain dictionary of lists of rows.
try:
    import pandas
    frames = {name: pandas.DataFrame(rows) for name, rows in tables.items()}
except ImportError:
    frames = tables
frames["runs"]"""
CHARTS = """\
# The report's charts (needs plotly: pip install 'headway[report]').
import plotly.graph_objects as go

def show(chart):
    figure = go.Figure(layout={"title": {"text": chart["title"]}, "template": "plotly_white"})
    figure.update_xaxes(title_text=chart["x"]["title"])
    figure.update_yaxes(title_text=chart["y"]["title"])
    for series in chart["series"]:
        if chart["kind"] == "bars":
            figure.add_bar(x=series["x"], y=series["y"], name=series["name"])
        else:
            dash = {"ideal": "dash", "trend": "dot"}.get(series["style"])
            figure.add_scatter(x=series["x"], y=series["y"], name=series["name"], line={"dash": dash})
    return figure

for chart in charts:
    show(chart).show()"""
TIMELINE = """\
# One run over time: all nodes, one row a quantity, one axis. It is the first of which there are samples.
from plotly.subplots import make_subplots

def over_time(run):
    rows = [row for row in tables["timeline"] if row["id"] == run["id"]]
    kinds = list(dict.fromkeys(row["what"] for row in rows))
    figure = make_subplots(rows=len(kinds), shared_xaxes=True, subplot_titles=kinds, vertical_spacing=0.03)
    for place, what in enumerate(kinds, start=1):
        for of in dict.fromkeys(row["of"] for row in rows if row["what"] == what):
            here = [row for row in rows if row["what"] == what and row["of"] == of]
            x, y = [row["seconds"] for row in here], [row["value"] for row in here]
            figure.add_scatter(x=x, y=y, name=of, row=place, col=1)
    return figure.update_layout(height=180 * len(kinds), title=run["run"])

sampled = {row["id"] for row in tables["timeline"]}
run = next((run for run in tables["runs"] if run["id"] in sampled), None)
figure = over_time(run) if run else print("There is no time line: no run has samples.")
figure"""


def notebook(page: Page) -> str:
    found: dict[str, Any] = {table.name: table.rows for table in tables(page)}
    found["charts"] = [chart for one in page["collections"] for chart in one["charts"]]
    packed = base64.b64encode(gzip.compress(json.dumps(found).encode(), mtime=0)).decode()
    cells = [
        _cell("markdown", markdown(page)),
        _cell("code", UNPACK.format(packed=packed)),
        *(_cell("code", code) for code in (FRAMES, CHARTS, TIMELINE)),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"headway-{number}"
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}, indent=1) + "\n"


def _cell(kind: str, source: str) -> dict[str, Any]:
    more: dict[str, Any] = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True), **more}
