"""A user's program for the matrix: `steady SECONDS`, `slow SECONDS`, `drift SECONDS CHANGE`,
`leak SECONDS MB_PER_SECOND [MB]`, `hold SECONDS MB`. It makes steps of 50 ms and says so; what drifts takes 1 + CHANGE
times as long for a step in the end."""

from __future__ import annotations

import sys
import time

import headway

STEP = 0.05


def main() -> None:
    kind, seconds, *numbers = sys.argv[1], float(sys.argv[2]), *map(float, sys.argv[3:])
    megabyte = 1 << 20
    held = numbers[-1] if kind == "hold" or len(numbers) > 1 else 0
    kept = [bytearray(b"x" * megabyte) for _ in range(int(held))]
    began, step = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        pause = STEP * (2 if kind == "slow" and passed > 0.55 * seconds else 1)
        if kind == "drift":
            pause *= 1 + numbers[0] * passed / seconds
        if kind == "leak":
            kept.append(bytearray(b"x" * int(numbers[0] * megabyte * pause)))
        time.sleep(pause)
        step += 1
        headway.log(step=step, loss=1.0, examples=10)


if __name__ == "__main__":
    main()
