"""Run folders that somebody has tampered with, and what every reading command must make of them."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from test_format1 import unpacked

MARK = "OUTSIDE-7f3a91"  # stands in files that are no business of a run folder
MOST_SECONDS, MOST_MEMORY = 2.0, 500 * 10**6
BUSY = 4.0  # times as long as allowed, where other tests have the cores as well
KEPT = ("single", "program")
COMMANDS = (
    "runs",
    "runs -o json",
    "show EVIL",
    "show EVIL -o json",
    "findings EVIL --evidence",
    "logs EVIL",
    "status",
    "stop EVIL",
    "cost EVIL --price 1/h",
    "compare EVIL GOOD",
    "query 'select count(*), sum(seconds), max(loss) from steps'",
    "query 'select * from events' -o json",
    "query 'select run, steps, command from runs'",
    "report EVIL -o OUT.md",
    "report ROOT -o OUT.html",
    "sweeps",
    "sweeps show sweep",
)
DEEP = "[" * 200_000 + "]" * 200_000
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**400,
    1e308,
    "NaN",
    "Infinity",
    "",
    "x" * 100_000,
    "\x1b]0;owned\x07\x1b[2J",
    "\ud800",
    "../../../etc/passwd",
    "'; drop table steps; --",
    [],
    {},
    [[[[1]]]],
    {"": {"": None}},
    "DEEP",
)


class Tampering:
    """What one case does to the folders, drawn with a number: hypothesis makes numbers, and shrinks them no further."""

    def __init__(self, number: int, root: Path, outside: Path) -> None:
        self.random = random.Random(number)
        self.root, self.outside = root, outside
        self.done: list[str] = []

    def tamper(self, folder: Path) -> None:
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            paths = sorted(path for path in folder.rglob("*") if not path.is_symlink())
            files = [path for path in paths if path.is_file() and path.stat().st_size < 2**30]
            change: Callable[[Path], None] = self.random.choice(
                (self.link, self.special, self.bytes_, self.size, self.json, self.json, self.json, self.json)
            )
            if change == self.link:
                path = self.random.choice([*paths, folder / "lock", folder / "control.sock"])
            else:
                path = self.random.choice(files)
            self.done.append(f"{change.__name__} {path.relative_to(self.root)}")
            change(path)

    def link(self, path: Path) -> None:
        """To what lies outside; a whole inner folder, too."""
        if path.is_dir():
            names = [each.name for each in path.iterdir()]
            shutil.rmtree(path)
            for name in names:
                (self.outside / name).write_text(
                    json.dumps({"t": 1.0, "kind": MARK, "format": 1, "reason": MARK}) + "\n"
                )
            path.symlink_to(self.outside)
        else:
            path.unlink(missing_ok=True)
            target = self.random.choice((self.outside / "secret", Path("/dev/zero"), Path("/dev/tty"), path))
            path.symlink_to(target)

    def special(self, path: Path) -> None:
        path.unlink()
        if self.random.random() < 0.5:
            os.mkfifo(path)
        else:
            path.mkdir()

    def bytes_(self, path: Path) -> None:
        data = bytearray(path.read_bytes() or b"\n")
        for _ in range(self.random.choice((1, 20))):
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        path.write_bytes(data)

    def size(self, path: Path) -> None:
        size = path.stat().st_size
        os.truncate(path, self.random.choice((0, self.random.randrange(size + 1), 2**36, 2**41)))

    def json(self, path: Path) -> None:
        """Another value somewhere, or a key less. Half of the time the tables are read from the events."""
        if path.suffix == ".jsonl":
            lines = path.read_text(errors="replace").splitlines()
            if not lines:
                return
            place = self.random.randrange(len(lines))
            lines[place] = self.spoilt(lines[place])
            path.write_text("\n".join(lines) + "\n", errors="surrogatepass")
            if self.random.random() < 0.7:
                path.parent.with_name("tables").joinpath("sealed.json").unlink(missing_ok=True)
        elif path.suffix == ".json":
            path.write_text(self.spoilt(path.read_text(errors="replace")), errors="surrogatepass")
        else:
            self.bytes_(path)

    def spoilt(self, text: str) -> str:
        try:
            document = json.loads(text)
        except ValueError:
            return text + "{"
        if isinstance(document, dict) and "format" in document and self.random.random() < 0.9:
            places = [place for place in _places(document) if place != ("format",)]
        else:
            places = _places(document)
        if not places:
            return text
        *way, last = self.random.choice(places)
        inner = document
        for key in way:
            inner = inner[key]
        if self.random.random() < 0.25:
            del inner[last]
        else:
            inner[last] = self.random.choice(VALUES)
        return json.dumps(document).replace('"DEEP"', DEEP)


def _places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, each in inner for place in ((*way, key), *_places(each, (*way, key)))]


def check(num_cases: int, place: Path, first: int = 0) -> Counter[str]:
    """How often the folder was called damaged, in cases that follow from `first`. AssertionError where a promise is
    broken, with what was done."""
    codes: Counter[str] = Counter()
    original = place / "original"
    corpus = unpacked(original)
    for each in corpus.iterdir():
        if not each.name.startswith((*KEPT, "sweeps")):
            shutil.rmtree(each)
    evil_names = {kept: next(path.name for path in corpus.iterdir() if path.name.startswith(kept)) for kept in KEPT}
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("read_hostile.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=place,
        env={**os.environ, "HEADWAY_RUNS": str(place / "runs"), "COLUMNS": "120"},
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def answer(arguments: list[str]) -> dict[str, Any]:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(arguments) + "\n")
        server.stdin.flush()
        return dict(json.loads(server.stdout.readline()))

    @seed(first)
    @settings(
        max_examples=num_cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        number=st.integers(0, 2**32 - 1),
        kept=st.sampled_from(KEPT),
        command=st.sampled_from(COMMANDS),
        of_sweep=st.booleans(),
    )
    def holds(number: int, kept: str, command: str, of_sweep: bool) -> None:
        root, outside, out = place / "runs", place / "outside", place / "out"
        for each in (root, outside, out):
            shutil.rmtree(each, ignore_errors=True)
        good = evil_names["program" if kept == "single" else "single"]
        needed = {kept, good, *(["sweeps"] if "sweep" in command else [])}
        for each in corpus.iterdir():
            if each.name.startswith(tuple(needed)):
                shutil.copytree(each, root / each.name)
        outside.mkdir()
        out.mkdir()
        (outside / "secret").write_text(f"{MARK}\n")
        tampering = Tampering(number, root, outside)
        if "sweeps" in command and of_sweep:
            tampering.tamper(next((root / "sweeps").iterdir()))
        else:
            tampering.tamper(root / evil_names[kept])
        before = _contents(outside)
        words = {"EVIL": evil_names[kept], "GOOD": good, "ROOT": str(root), "OUT": str(out / "page")}
        arguments = [_filled(word, words) for word in shlex.split(command)]
        said = answer(arguments)
        codes["damaged" if "damaged" in said["output"] else "refused" if said["code"] else "shown"] += 1
        about = f"{command}: {'; '.join(tampering.done)} (number {number}): exit code {said['code']}\n"
        about += said["output"][-3000:]
        assert "Traceback" not in said["output"], about
        assert 0 <= said["code"] < 10, about
        assert "No such option" not in said["output"], about
        assert said["seconds"] < MOST_SECONDS * BUSY, f"{said['seconds']:.1f} s: {about}"
        assert said["memory"] < MOST_MEMORY, f"{said['memory']:,} bytes: {about}"
        written = "".join(path.read_text(errors="replace") for path in out.rglob("*") if path.is_file())
        assert MARK not in said["output"].replace(f'"{MARK}"', MARK) + written, about
        assert _contents(outside) == before, about
        assert "\x1b" not in said["output"], about
        if command == "runs":
            assert good in said["output"], about

    try:
        holds()
    finally:
        server.stdin.close()
        server.wait(30)
        server.stdout.close()
    return codes


def _filled(word: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        word = word.replace(name, value) if name in ("ROOT", "OUT") or word == name else word
    return word


def _contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(folder.iterdir())}
