"""Nothing that comes from a file steers the terminal."""

from __future__ import annotations

import io
import json
import sys

import pytest

from headway import cli
from headway.cli.inspect import _lines
from headway.cli.output import print_json, print_table
from headway.cli.visible import guarded, in_json, visible, visible_in
from headway.errors import HeadwayError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\x9b31mb\x7f\x00", "a\\x9b31mb\\x7f\\x00"),
        ("a\rb", "a\\x0db"),
        ("\u202etxt\u2066", "\\u202etxt\\u2066"),
        ("\ud800", "\\ud800"),
        ("tab\tand\nline, Ω ▁█ 日本 é", "tab\tand\nline, Ω ▁█ 日本 é"),
    ],
)
def test_what_steers_a_terminal_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible_in({"a": [text, 1]}) == {"a": [shown, 1]}
    assert json.loads(in_json(json.dumps(text, ensure_ascii=False))) == text


def test_all_that_a_command_prints_is_guarded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def app(prog_name: str) -> None:
        print("out \x1b[31m")
        print_table(["a\x1b"], [["b\x1b\u202e\ud800"]])
        print_json({"c": "\x1b\x9b\ud800"})
        raise HeadwayError("wrong \x1b]0;title\x07")

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit):
        cli.main()
    out, err = capsys.readouterr()
    assert out.startswith("out \\x1b[31m\na\\x1b\nb\\x1b\\u202e\\ud800\n")
    assert json.loads(out[out.index("{") :]) == {"c": "\x1b\x9b\ud800"}
    assert err == "headway: wrong \\x1b]0;title\\x07\n"
    assert "\x1b" not in out


def test_a_line_drawn_again_and_bytes_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    beneath = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(beneath, encoding="utf-8", write_through=True))
    with guarded():
        print("50 %", end="\r")
        sys.stdout.buffer.write(b"\x1b")
    assert beneath.getvalue() == b"50 %\r\x1b"


def test_lines_of_a_log() -> None:
    assert _lines(b"1 %\r2 %\r\nend\x1b[0m\n\nlast") == ["1 %", "2 %", "end\\x1b[0m", "", "last"]
    assert _lines(b"one\n") == ["one"]
    assert _lines(b"") == []
