"""Control groups of both versions, on recorded file trees."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from headway.host import control_groups
from headway.host.control_groups import PERIOD_US, ControlGroupError, Limits, held_back, slices

LIMITS = Limits(cpus=0.25, memory=2**30, disk_read=1e8, disk_write=5e7, device="254:0")


def version_1(root: Path) -> Path:
    for tree, mark in (
        ("cpu", "cpu.cfs_quota_us"),
        ("cpuacct", "cpuacct.usage"),
        ("memory", "memory.limit_in_bytes"),
        ("blkio", "blkio.throttle.read_bps_device"),
        ("freezer", "tasks"),
    ):
        (root / tree).mkdir()
        (root / tree / mark).touch()
    return root


def version_2(root: Path, controllers: str = "cpuset cpu io memory pids") -> Path:
    (root / "cgroup.controllers").write_text(controllers + "\n")
    (root / "cgroup.subtree_control").write_text("memory pids\n")
    return root


def text(path: Path) -> str:
    return path.read_text()


def test_version_1_writes_each_limit_into_its_own_tree(tmp_path: Path) -> None:
    groups = control_groups.find(version_1(tmp_path))
    assert (groups.version, groups.problems) == (1, {})
    group = groups.make("hw-a")
    group.limit(LIMITS)
    group.add(42)
    assert text(tmp_path / "cpu/hw-a/cpu.cfs_quota_us") == str(PERIOD_US // 4)
    assert text(tmp_path / "cpu/hw-a/cpu.cfs_period_us") == str(PERIOD_US)
    assert text(tmp_path / "memory/hw-a/memory.limit_in_bytes") == str(2**30)
    assert text(tmp_path / "blkio/hw-a/blkio.throttle.read_bps_device") == "254:0 100000000"
    assert text(tmp_path / "blkio/hw-a/blkio.throttle.write_bps_device") == "254:0 50000000"
    assert {text(tmp_path / tree / "hw-a/cgroup.procs") for tree in ("cpu", "cpuacct", "memory", "blkio")} == {"42"}
    group.freeze(True)
    assert text(tmp_path / "freezer/hw-a/freezer.state") == "FROZEN"
    assert groups.existing() == ["hw-a"]
    assert group.processes() == [42]


def test_version_1_says_a_huge_number_where_there_is_no_limit(tmp_path: Path) -> None:
    group = control_groups.find(version_1(tmp_path)).make("hw-a")
    (tmp_path / "memory/hw-a/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert group.usage().memory_limit is None


def test_version_1_reads_what_was_used(tmp_path: Path) -> None:
    group = control_groups.find(version_1(tmp_path)).make("hw-a")
    (tmp_path / "cpu/hw-a/cpu.stat").write_text("nr_periods 100\nnr_throttled 7\nthrottled_time 1500000000\n")
    (tmp_path / "cpuacct/hw-a/cpuacct.usage").write_text("2500000000\n")
    (tmp_path / "memory/hw-a/memory.usage_in_bytes").write_text("1000\n")
    (tmp_path / "memory/hw-a/memory.limit_in_bytes").write_text("3000\n")
    (tmp_path / "memory/hw-a/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (tmp_path / "blkio/hw-a/blkio.throttle.io_service_bytes_recursive").write_text(
        "254:0 Read 4096\n254:0 Write 100\n254:16 Read 4\n254:16 Write 0\nTotal 4200\n"
    )
    usage = group.usage()
    assert (usage.cpu_seconds, usage.throttled_seconds) == (2.5, 1.5)
    assert (usage.memory, usage.memory_limit, usage.oom_kills) == (1000, 3000, 1)
    assert (usage.read_bytes, usage.written_bytes) == (4100, 100)


def test_version_2_switches_controllers_on_and_writes_limits(tmp_path: Path) -> None:
    groups = control_groups.find(version_2(tmp_path))
    assert (groups.version, groups.problems) == (2, {})
    assert text(tmp_path / "cgroup.subtree_control") == "+io"  # the last that was not on; `memory` was
    group = groups.make("hw-a")
    group.limit(LIMITS)
    group.add(42)
    assert text(tmp_path / "hw-a/cpu.max") == f"{PERIOD_US // 4} {PERIOD_US}"
    assert text(tmp_path / "hw-a/memory.max") == str(2**30)
    assert text(tmp_path / "hw-a/io.max") == "254:0 rbps=100000000 wbps=50000000"
    assert text(tmp_path / "hw-a/cgroup.procs") == "42"
    group.freeze(True)
    assert text(tmp_path / "hw-a/cgroup.freeze") == "1"


def test_a_limit_of_cpus_can_be_lifted(tmp_path: Path) -> None:
    """Not by a large number: version 1 refuses more than the group around it has."""
    for version, name, none in ((version_1, "cpu/hw-a/cpu.cfs_quota_us", "-1"), (version_2, "hw-a/cpu.max", "max")):
        root = tmp_path / version.__name__
        root.mkdir()
        group = control_groups.find(version(root)).make("hw-a")
        group.limit(Limits(cpus=0.25))
        group.limit(Limits(cpus=math.inf))
        assert text(root / name).split()[0] == none


def test_version_2_reads_what_was_used(tmp_path: Path) -> None:
    group = control_groups.find(version_2(tmp_path)).make("hw-a")
    (tmp_path / "hw-a/cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\nnr_throttled 7\nthrottled_usec 1500000\n")
    (tmp_path / "hw-a/memory.current").write_text("1000\n")
    (tmp_path / "hw-a/memory.max").write_text("max\n")
    (tmp_path / "hw-a/memory.events").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n")
    (tmp_path / "hw-a/io.stat").write_text("254:0 rbytes=4096 wbytes=100 rios=1 wios=1\n254:16 rbytes=4 wbytes=0\n")
    usage = group.usage()
    assert (usage.cpu_seconds, usage.throttled_seconds) == (2.5, 1.5)
    assert (usage.memory, usage.memory_limit, usage.oom_kills) == (1000, None, 2)
    assert (usage.read_bytes, usage.written_bytes) == (4100, 100)


def test_a_missing_controller_is_said_and_what_needs_it_is_refused(tmp_path: Path) -> None:
    groups = control_groups.find(version_2(tmp_path, "cpuset pids"))
    assert set(groups.problems) == {"cpu", "memory", "io"}
    assert "no cpu controller" in groups.problems["cpu"]
    group = groups.make("hw-a")
    with pytest.raises(ControlGroupError, match="CPU cannot be limited"):
        group.limit(Limits(cpus=1.0))
    assert group.usage().cpu_seconds is None


def test_only_groups_of_ours_are_made_or_listed(tmp_path: Path) -> None:
    groups = control_groups.find(version_2(tmp_path))
    (tmp_path / "system.slice").mkdir()
    with pytest.raises(ControlGroupError, match="hw-"):
        groups.make("system.slice")
    groups.make("hw-b")
    (tmp_path / "hw-b/inner").mkdir()
    assert groups.existing() == ["hw-b"]
    groups.find("hw-b").remove()
    assert not (tmp_path / "hw-b").exists()
    assert groups.existing() == []


@pytest.mark.parametrize(
    ("cpus", "wanted"),
    [(0.25, (5000, 20_000)), (0.05, (1000, 20_000)), (1 / 30, (1000, 30_000)), (0.001, (1000, 1_000_000))],
)
def test_a_small_share_of_a_cpu_comes_in_slices_that_the_kernel_takes(cpus: float, wanted: tuple[int, int]) -> None:
    """Credits of 2 an hour are a thirtieth of a CPU, which in slices of 20 ms would be less than the kernel allows."""
    assert slices(cpus) == wanted


# --- who we are ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("tree", "line"), [("cpu", "4:cpu:"), ("cpu,cpuacct", "4:cpu,cpuacct:"), ("cpu", "4:cpuacct,cpu:")]
)
def test_version_1_counts_for_our_group_and_those_around_it(tmp_path: Path, tree: str, line: str) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(f"5:memory:/other\n{line}/batch/a job\n0::/\n")
    for folder, stat in (
        ("", "nr_periods 0\n"),  # the outermost one of a machine
        ("batch", "throttled_time 3000000000\n"),
        ("batch/a job", "throttled_time 500000000\n"),
        ("batch/a job/hw-1", "throttled_time 9000000000\n"),  # one of our own: its limit is meant
        ("other", "throttled_time 9000000000\n"),
    ):
        (tmp_path / tree / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / tree / folder / "cpu.stat").write_text(stat)
    batch = tmp_path / tree / "batch"
    assert held_back(tmp_path, tmp_path) == {batch / "a job": 0.5, batch: 3.0}


def test_version_2_counts_for_our_group_and_those_around_it(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/user.slice/session.scope\n")
    (tmp_path / "user.slice/session.scope").mkdir(parents=True)
    (tmp_path / "cpu.stat").write_text("usage_usec 7\n")
    (tmp_path / "user.slice/cpu.stat").write_text("usage_usec 7\nthrottled_usec 250000\n")
    (tmp_path / "user.slice/session.scope/cpu.stat").write_text("usage_usec 7\nthrottled_usec 0\n")
    user = tmp_path / "user.slice"
    assert held_back(tmp_path, tmp_path) == {user: 0.25, user / "session.scope": 0.0}


def test_a_container_that_sees_only_its_own_group(tmp_path: Path) -> None:
    """Its name outside is told, and means nothing inside."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/docker/0123abcd\n")
    (tmp_path / "cpu.stat").write_text("throttled_usec 250000\n")
    assert held_back(tmp_path, tmp_path) == {tmp_path: 0.25}
