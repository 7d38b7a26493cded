"""What a file of samples says: the tables, what failed, whether everything wanted was reached, and whether a benchmark
may add to it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from overhead_cases import MODELS, chosen_cases, scaling_setups
from overhead_figures import (
    WANTED_FIRST_STEP,
    WANTED_MEMORY,
    Sample,
    Verdict,
    commits_of,
    core_of,
    counted,
    overhead_table,
    pairs_of,
    scaling_table,
    tuned_table,
    verdict,
)


def verdicts_of(samples: Sequence[Sample], keep_loaded: bool) -> list[Verdict]:
    found = []
    for case in chosen_cases([]):
        if good := counted(pairs_of(samples, case.name), keep_loaded):
            found.append(verdict(case.name, case.model, good))
    return found


def failures(samples: Sequence[Sample]) -> list[str]:
    """What went wrong since the benchmark was last started."""
    found: list[str] = []
    for sample in samples:
        if sample["kind"] == "begin":
            found = []
        elif sample["kind"] == "failed":
            found.append(f"{sample['case']} failed: {sample['reason']}")
    return found


def is_reached(samples: Sequence[Sample], keep_loaded: bool) -> bool:
    """Whether nothing failed and every condition holds. Where the CNN was compared, the bare one's share of the core
    must be known."""
    verdicts, core = verdicts_of(samples, keep_loaded), core_of(samples, keep_loaded)
    if failures(samples) or any(one.missed for one in verdicts):
        return False
    if core is None:
        return not any(one.model == "mnist_cnn" for one in verdicts)
    return core.is_reached


def tables(samples: Sequence[Sample], keep_loaded: bool) -> str:
    parts = []
    commits = commits_of(samples)
    if len(commits) > 1:
        each = ", ".join(f"{commit} ({count})" for commit, count in commits.items())
        parts.append(f"These are samples of several versions of Headway: {each}.")
    elif commits:
        parts.append(f"Commit {next(iter(commits))}.")
    verdicts = verdicts_of(samples, keep_loaded)
    if core := core_of(samples, keep_loaded):
        parts.append(str(core))
    elif any(one.model == "mnist_cnn" for one in verdicts):
        parts.append("What share of the core the bare CNN reaches is not known: there is no undisturbed sample of it.")
    if verdicts:
        parts.append(overhead_table(verdicts))
        parts.append(
            f"Wanted besides: first step at most {WANTED_FIRST_STEP}, and peak memory of training tasks and of servers "
            f"at most {WANTED_MEMORY} of the bare one."
        )
    parts += failures(samples)
    kinds = {sample["kind"] for sample in samples}
    if "scaling" in kinds:
        both, options = scaling_setups(MODELS[0])
        parts.append(scaling_table(samples, [setup.name for setup in both + options], keep_loaded))
    if "tuned" in kinds:
        parts.append("How Headway beats the bare script (single):")
        parts.append(tuned_table(samples, keep_loaded))
    if keep_loaded:
        parts.append("Disturbed samples are counted.")
    return "\n\n".join(parts) + "\n"


def refusal(samples: Sequence[Sample], facts: Sample, mix_commits: bool) -> str | None:
    """Why a benchmark that begins with these facts may not add to these samples; None where it may."""
    before = [sample["settings"] for sample in samples if sample["kind"] == "begin"]
    if before and before[-1] != facts["settings"]:
        return f"measured with {before[-1]}; go on with the same settings"
    others = [commit for commit in commits_of(samples) if commit != facts["commit"]]
    if others and not mix_commits:
        return f"measured at {', '.join(others)}, this is {facts['commit']}: begin anew, or mix them with --mix-commits"
    return None
