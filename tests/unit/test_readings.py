"""What is read of a host, on recorded files; and of this very process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from headway.host import control_groups
from headway.host.readings import PAGE, TICKS, Readings, Traffic
from headway.host.trees import Tree

STAT = """cpu  1000 20 300 5000 60 7 8 0 0 0
cpu0 500 10 150 2500 30 3 4 0 0 0
intr 12345 0 0
ctxt 987654
"""
MEMINFO = """MemTotal:       2000 kB
MemFree:         100 kB
MemAvailable:    500 kB
"""
NET = """\
Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:    1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0
  eth0:5000      50    0    0    0     0          0         0     600       6    0    0    0     0       0          0
  eth1:   1       1    0    0    0     0          0         0       2       2    0    0    0     0       0          0
"""
DISKS = """   7       0 loop0 1 0 99 0 1 0 99 0 0 0 0
 254       0 vda 10 0 200 5 20 0 400 5 0 0 0
 254       1 vda1 10 0 200 5 20 0 400 5 0 0 0
 259       0 nvme0n1 1 0 8 0 1 0 16 0 0 0 0
 259       1 nvme0n1p1 1 0 8 0 1 0 16 0 0 0 0
"""


def host(tmp_path: Path) -> Path:
    for name, content in (
        ("stat", STAT),
        ("meminfo", MEMINFO),
        ("net/dev", NET),
        ("diskstats", DISKS),
        (
            "pressure/cpu",
            "some avg10=1.00 avg60=0.50 avg300=0.10 total=2500000\nfull avg10=0 avg60=0 avg300=0 total=1\n",
        ),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def test_a_machine(tmp_path: Path) -> None:
    read = Readings(host(tmp_path)).host()
    assert read.cpu_seconds == (1000 + 20 + 300 + 7 + 8) / TICKS
    assert (read.memory, read.memory_limit) == (1500 * 1024, 2000 * 1024)
    assert read.loopback == Traffic(1000, 10, 1000, 10)
    assert read.external == Traffic(5001, 51, 602, 8)
    assert (read.read_bytes, read.written_bytes) == ((200 + 8) * 512, (400 + 16) * 512)
    assert read.context_switches == 987654
    assert read.pressure == {"cpu": 2.5}
    assert read.throttled_seconds is None


def test_an_emulated_host_is_its_control_group(tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    groups.mkdir()
    (groups / "cgroup.controllers").write_text("cpu io memory\n")
    (groups / "cgroup.subtree_control").write_text("cpu io memory\n")
    group = control_groups.find(groups).make("hw-a")
    (groups / "hw-a/cpu.stat").write_text("usage_usec 1500000\nnr_throttled 3\nthrottled_usec 250000\n")
    (groups / "hw-a/memory.current").write_text("4096\n")
    (groups / "hw-a/memory.max").write_text("8192\n")
    proc = tmp_path / "proc"
    proc.mkdir()
    read = Readings(host(proc), group).host()
    assert (read.cpu_seconds, read.throttled_seconds) == (1.5, 0.25)
    assert (read.memory, read.memory_limit) == (4096, 8192)
    assert read.external == Traffic(5001, 51, 602, 8)


def test_of_a_host_without_a_control_group_the_machine_says_nothing_but_its_network(tmp_path: Path) -> None:
    read = Readings(host(tmp_path), is_part=True).host()
    assert (read.cpu_seconds, read.memory, read.memory_limit, read.read_bytes, read.context_switches) == (None,) * 5
    assert read.pressure == {}
    assert read.external == Traffic(5001, 51, 602, 8)
    assert read.machine_cpu_seconds == (1000 + 20 + 300 + 7 + 8) / TICKS


def test_a_disk_behind_a_link_is_disk_and_not_network(tmp_path: Path) -> None:
    (host(tmp_path) / "net/dev").write_text(f"{NET} disk0: 7000 7 0 0 0 0 0 0 800 8 0 0 0 0 0 0\n")
    read = Readings(tmp_path).host()
    assert (read.read_bytes, read.written_bytes) == (7000, 800)
    assert read.external == Traffic(5001, 51, 602, 8)


def test_a_process_with_an_odd_name(tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    rest = "S 1 42 42 0 -1 4194304 9 0 0 0 150 50 0 0 20 0 7 0 100 1000000 33 18446744073709551615"
    (tmp_path / "42/stat").write_text(f"42 (a) b (c)) {rest}\n")
    (tmp_path / "42/io").write_text("rchar: 1\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 8192\n")
    read = Readings(tmp_path).process(42)
    assert read is not None
    assert (read.cpu_seconds, read.rss, read.threads) == (200 / TICKS, 33 * PAGE, 7)
    assert (read.read_bytes, read.written_bytes) == (4096, 8192)
    assert Readings(tmp_path).process(43) is None


def test_what_a_kernel_does_not_have_is_not_known(tmp_path: Path) -> None:
    read = Readings(tmp_path).host()
    assert (read.cpu_seconds, read.memory, read.read_bytes, read.pressure) == (None, None, None, {})
    assert read.external == Traffic()


def test_this_very_machine() -> None:
    readings = Readings()
    before, own = readings.host(), readings.process(os.getpid())
    assert before.cpu_seconds is not None and before.memory is not None and own is not None
    assert own.rss > 10_000_000
    while (now := readings.process(os.getpid())) and now.cpu_seconds < own.cpu_seconds + 0.05:
        sum(range(10_000))
    after = readings.host()
    assert after.cpu_seconds is not None
    assert after.cpu_seconds >= before.cpu_seconds + 0.03


def test_pages_that_processes_of_a_tree_share_count_once() -> None:
    """A parent of 100 MB that forks twice: three processes, and still 100 MB."""
    script = (
        "import os, time\nx = bytearray(os.urandom(2**20) * 100)\nfor _ in range(2):\n"
        "    if os.fork() == 0:\n        time.sleep(60)\nprint('up', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            assert parent.stdout is not None
            parent.stdout.readline()
            tree = Tree(parent.pid, Readings())
            tree.look()
            reading = tree.reading()
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
    assert reading is not None
    assert len(tree.pids) == 3
    assert reading.rss > 300e6
    assert reading.memory is not None
    assert 100e6 < reading.memory < 150e6
