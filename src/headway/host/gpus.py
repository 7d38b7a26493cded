"""NVIDIA GPUs, where there are any and the package nvidia-ml-py is installed. Otherwise: none."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any


class Gpus:
    def __init__(self, nvml: Any, handles: list[Any], problem: str | None = None) -> None:
        self._nvml = nvml
        self._handles = handles
        self.problem = problem
        """Why there are none."""

    def __len__(self) -> int:
        return len(self._handles)

    def read(self) -> list[dict[str, Any]]:
        """Of each: the share of time in which it computed since the driver's last sample, memory, watts."""
        rows = []
        for number, handle in enumerate(self._handles):
            use, memory = self._nvml.nvmlDeviceGetUtilizationRates(handle), self._nvml.nvmlDeviceGetMemoryInfo(handle)
            row = {"gpu": number, "busy": use.gpu / 100, "memory": memory.used, "memory_limit": memory.total}
            with contextlib.suppress(self._nvml.NVMLError):  # not every card measures it
                row["watts"] = self._nvml.nvmlDeviceGetPowerUsage(handle) / 1000
            rows.append(row)
        return rows


def find() -> Gpus:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return Gpus(None, [], "the package nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
        return Gpus(nvml, [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())])
    except nvml.NVMLError as error:
        return Gpus(nvml, [], str(error))
