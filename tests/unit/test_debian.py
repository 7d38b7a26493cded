"""Which Debian packages the system tests unpack, on machines that have some of them installed."""

from __future__ import annotations

from debian import simulated, to_unpack

SHELL = "chromium-headless-shell"
NEEDED = {SHELL: "150-1", "chromium-common": "150-1", "libopus0": "1.3-3", "libc6": "2.36-9"}


def test_a_machine_without_a_browser_gets_what_it_lacks() -> None:
    lacking = {SHELL: "150-1", "chromium-common": "150-1", "libopus0": "1.3-3"}
    assert to_unpack(SHELL, lacking, NEEDED) == ["chromium-common", SHELL, "libopus0"]


def test_a_machine_with_chromium_gets_the_data_beside_the_browser_all_the_same() -> None:
    """Debian's `chromium` brings `chromium-common`, where icudtl.dat is, but not the shell that looks beside itself."""
    assert to_unpack(SHELL, {SHELL: "150-1"}, NEEDED) == ["chromium-common", SHELL]


def test_a_machine_with_the_shell_itself_gets_it_unpacked_whole() -> None:
    assert to_unpack(SHELL, {}, NEEDED) == ["chromium-common", SHELL]


def test_the_c_library_of_the_machine_is_never_replaced() -> None:
    assert "libc6" not in to_unpack(SHELL, {SHELL: "150-1"}, NEEDED)


def test_new_packages_and_renewed_ones_are_read_from_a_simulated_installation() -> None:
    printed = (
        "Reading package lists...\n"
        "Inst libopus0 (1.3.1-3 Debian:12.15/oldstable [amd64])\n"
        "Inst chromium-common [149.0-1] (150.0-1~deb12u1 Debian:12.15/oldstable, Security:12 [amd64]) []\n"
        "Conf libopus0 (1.3.1-3 Debian:12.15/oldstable [amd64])\n"
    )
    assert simulated(printed) == {"libopus0": "1.3.1-3", "chromium-common": "150.0-1~deb12u1"}
