"""Accuracy and loss: also of runs that did not finish, and in words where there is nothing to draw."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from test_record import CHIEF, new_run, row, write_rows

from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.report.html import html
from headway.report.page import Page, page


def run_of(root: Path, state: str, losses: list[float | None], name: str = "a-run", **settings: Any) -> RunFolder:
    folder = new_run(root, name, **settings)
    write_rows(folder, CHIEF, [row(100 + 0.5 * k, 1 + k, loss=loss) for k, loss in enumerate(losses)])
    facts = {"state": state, "reason": None, "created": 98.0, "launches": [{"started": 98.0, "ended": 150.0}]}
    folder.write_facts({**folder.facts(), **facts})
    return folder


def shown(folder: RunFolder) -> tuple[Page, str]:
    found = page([Run(folder)])
    assert found["runs"][0]["problem"] is None
    return found, html(found)


def block(text: str, name: str) -> Any:
    (packed,) = re.findall(rf'id="{name}">([^<]*)<', text)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_the_loss_of_a_run_that_did_not_finish_goes_to_the_page_with_its_state(tmp_path: Path, state: str) -> None:
    folder = run_of(tmp_path, state, [2.0, 1.5, 1.2])
    found, text = shown(folder)
    data = block(text, "data-page")
    (group,) = data["collections"][0]["groups"]
    assert group["runs"] == []
    assert group["others"] == [str(folder.path)]
    assert data["states"] == {"run-0": state}
    assert block(text, "data-curves")["run-0"]["train"]["raw"] == [2.0, 1.5, 1.2]
    assert 'id="plot-learn-loss"' in text
    assert found["runs"][0]["curves"]["train"]["not_finite"] is None


def test_a_loss_that_became_not_finite_is_said(tmp_path: Path) -> None:
    found, text = shown(run_of(tmp_path, "failed", [2.0, 3.0, math.inf, math.nan]))
    assert found["runs"][0]["curves"]["train"]["not_finite"] == {"values": 2, "of": 4, "first_step": 3}
    name = found["runs"][0]["name"]
    assert f"The loss became not finite: {name} at step 3 (2 of 4 values)." in text


def test_where_nothing_was_told_of_learning_there_are_words_and_no_chart(tmp_path: Path) -> None:
    _, text = shown(run_of(tmp_path, "finished", [None, None]))
    assert "None of these runs has told of a loss or of an accuracy." in text
    assert "plot-learn" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)


def test_the_page_knows_whose_program_it_was(tmp_path: Path) -> None:
    own = {"workload": {"command": "python train.py"}, "cluster": {"worker": 1, "ps": 1}}
    for settings, is_program in ((own, True), ({}, False)):
        _, text = shown(run_of(tmp_path, "failed", [], "own" if is_program else "ours", **settings))
        figures = block(text, "data-run-0")["figures"]
        assert (figures["is_program"], figures["num_ps"]) == (is_program, 1)
        assert figures["strategy"] == "ps-async"
