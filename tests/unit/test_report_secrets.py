"""A report is sent to others: it does not tell them the user's passwords."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.bench.folder import Trial
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.report.files import write_csv
from headway.report.groups import _group as group_of
from headway.report.html import html
from headway.report.markdown import markdown
from headway.report.notebook import notebook
from headway.report.page import page
from headway.spec.secrets import is_secret, redacted, without_secrets

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from made_runs import Made, make_run


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python train.py --api-key=hunter2 --steps 5", "python train.py --api-key=*** --steps 5"),
        ("python train.py --token hunter2 --steps 5", "python train.py --token *** --steps 5"),
        ("env WANDB_API_KEY=hunter2 python train.py", "env WANDB_API_KEY=*** python train.py"),
        ("python train.py --apiKey 'hunter2 hunter2'", "python train.py --apiKey ***"),
        ("sh -c 'A=1 DB_PASSWORD=hunter2 python t.py'", "sh -c 'A=1 DB_PASSWORD=*** python t.py'"),
        ("python train.py --data s3://me:hunter2@host/x", "python train.py --data s3://me:***@host/x"),
        ("python train.py --use-auth --steps 5", "python train.py --use-auth --steps 5"),
        ("python train.py 'hunter2", "***"),
        ("t.py -p hunter2 --x 1", "t.py -p *** --x 1"),
        ("mysql -phunter2 -u me", "mysql -p*** -u me"),
        ("curl --header 'Authorization: Bearer hunter2' x", "curl --header 'Authorization: ***' x"),
        ("curl -H 'X-Api-Key: hunter2' x", "curl -H 'X-Api-Key: ***' x"),
        ("t.py credential=hunter2 api_key=hunter2", "t.py credential=*** api_key=***"),
        ("t.py -p 8080", "t.py -p 8080"),
        ("t.py -port 5 --tokenizer gpt2 --num_tokens 5", "t.py -port 5 --tokenizer gpt2 --num_tokens 5"),
        ("curl -H 'Accept: text/html' x", "curl -H 'Accept: text/html' x"),
    ],
)
def test_values_of_secret_options_are_hidden(command: str, shown: str) -> None:
    assert redacted(command) == shown


def test_a_command_without_secrets_stays_as_it_was_written() -> None:
    for command in ('python train.py --tokenizer "bert base" --max-tokens 128', "sh -c 'python train.py; true'"):
        assert redacted(command) == command
    assert not is_secret("keyboard")


def test_a_job_is_shown_without_secrets() -> None:
    workload = {
        "command": ["t.py", "--token", "hunter2", "-H", "Cookie: hunter2"],
        "env": {"A_KEY": "hunter2", "B": "1"},
    }
    shown = {"command": ["t.py", "--token", "***", "-H", "Cookie: ***"], "env": {"A_KEY": "***", "B": "1"}}
    assert without_secrets({"workload": workload, "steps": 5}) == {"workload": shown, "steps": 5}


def test_no_form_of_a_report_tells_a_secret(tmp_path: Path) -> None:
    made = make_run(tmp_path / "runs", Made("two", steps=60))
    folder = RunFolder(tmp_path / "program")
    shutil.copytree(made.path, folder.path)
    (folder.path / "result.json").unlink()
    job = json.loads(folder.job_file.read_text())
    own: dict[str, Any] = {"command": ["python", "t.py", "--password", "hunter2"], "report": {"steps": "global"}}
    job["resolved"]["workload"] |= own | {"env": {"HF_TOKEN": "hunter2"}}
    job["asked"] = {"workload": job["resolved"]["workload"]}
    folder.job_file.write_text(json.dumps(job))
    found = page([Run(folder), Run(made)])
    assert found["runs"][0]["problem"] is None
    assert "--password ***" in html(found)
    write_csv(found, tmp_path / "r.csv")
    files = "".join(path.read_text() for path in (tmp_path / "r.csv").glob("*"))
    for text in (json.dumps(found), html(found), markdown(found), notebook(found), files):
        assert "hunter2" not in text


def test_a_sweep_over_commands_and_variables_tells_no_secret() -> None:
    settings = {"workload.command": ["t.py", "--token", "hunter2"], "workload.env": {"A_KEY": "hunter2", "B": "seen"}}
    trial = Trial("key", settings, 2, False, "real", [], "done", None)
    label = group_of(trial).label
    assert "hunter2" not in label
    assert "--token ***" in label
    assert "seen" in label
