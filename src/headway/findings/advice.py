"""What to do about a finding: options, each with the setting that it is about, so that no job is told of one that it
does not have. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

Setting = Literal[
    "cluster.ROLE.batch_size",
    "cluster.ROLE.threads",
    "cluster.evaluator",
    "cluster.ps",
    "layout",
    "measure.warmup",
    "site.fabric",
    "site.nodes",
    "strategy.aggregate",
    "strategy.kind",
    "strategy.placement",
    "strategy.pull_ahead",
    "strategy.transfer",
    "workload.batch_size",
    "workload.dataset",
    "workload.optimizer",
]
SETTINGS: tuple[Setting, ...] = get_args(Setting)
OF_SERVERS: tuple[Setting, ...] = ("cluster.ps",)
OF_EMULATED_HOSTS: tuple[Setting, ...] = ("layout", "site.fabric", "site.nodes")
OF_THE_ENGINE = ("cluster.ROLE.batch_size", "cluster.evaluator", "strategy.", "workload.")
"""A program has its own model, data and batches; `strategy` only says which of its tasks restart together."""
STRATEGIES: dict[Setting, tuple[str, ...]] = {
    "strategy.aggregate": ("ps-sync",),
    "strategy.placement": ("ps-async", "ps-sync"),
    "strategy.pull_ahead": ("ps-async",),
    "strategy.transfer": ("ps-async", "ps-sync", "allreduce"),
}
"""Which strategies a setting is for; others are for all."""


@dataclass(frozen=True)
class JobKind:
    """As much of a job as decides which settings it has."""

    strategy: str = "single"
    site: str = "local"
    is_program: bool = False
    """The user's own."""
    has_servers: bool = False

    def has(self, setting: Setting) -> bool:
        if self.is_program and setting.startswith(OF_THE_ENGINE):
            return False
        if setting in OF_SERVERS and not self.has_servers:
            return False
        if setting in OF_EMULATED_HOSTS and self.site != "emulated":
            return False
        return self.strategy in STRATEGIES.get(setting, (self.strategy,))


@dataclass(frozen=True)
class Advice:
    """One thing to do."""

    text: str
    """A clause without an end: `send half the bytes (strategy.transfer: bfloat16)`."""
    setting: Setting | None = None
    """It is given only to jobs that have this setting; None: to every job."""


def for_job(options: Iterable[Advice], job: JobKind) -> tuple[Advice, ...]:
    return tuple(one for one in options if one.setting is None or job.has(one.setting))


def in_words(options: Iterable[Advice]) -> str:
    """A; b; or c."""
    *rest, last = [one.text for one in options] or [""]
    text = "; ".join([*rest, f"or {last}" if rest else last])
    return f"{text[:1].upper()}{text[1:]}." if text else ""
