"""How long `headway --help` takes: the whole process, repeated, beside an empty Python for comparison."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

REPEATS = 20
WANTED = 0.5  # seconds


def seconds_of(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    seconds_of("-m", "headway", "--help")  # compiles what is not compiled yet
    samples = {"python -c pass": [], "headway --help": []}  # type: dict[str, list[float]]
    for _ in range(REPEATS):
        samples["python -c pass"].append(seconds_of("-c", "pass"))
        samples["headway --help"].append(seconds_of("-m", "headway", "--help"))
    for name, taken in samples.items():
        print(f"{name:<16} median {statistics.median(taken):.3f} s, slowest {max(taken):.3f} s, {REPEATS} times")
    sys.exit(0 if statistics.median(samples["headway --help"]) < WANTED else 1)


if __name__ == "__main__":
    main()
