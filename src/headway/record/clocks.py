"""Every table on the launcher's clock. The events keep the times of the node that wrote them; tables correct them by
what the launcher measured (`clock` events), where that is more than it may be wrong by."""

from __future__ import annotations

from collections import defaultdict

from headway.record.folder import LAUNCHER, RunFolder


class Clocks:
    def __init__(self, folder: RunFolder) -> None:
        self._node_of: dict[str, str] = {}
        """Who writes events -> its node."""
        self._offsets: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """Node -> (from when on, seconds that its clock is ahead); only where it is surely off."""
        path = folder.events(LAUNCHER)
        for event in folder.reader.lines(path) if folder.reader.exists(path) else ():
            if event["kind"] == "node_ready":
                node = str(event["node"])
                self._node_of |= dict.fromkeys([node, f"agent-{node}", *event.get("tasks", ())], node)
            elif event["kind"] == "clock" and abs(float(event["offset"])) > float(event["uncertainty"]):
                # They go into SQL: numbers and nothing else.
                t, offset = float(event["t"]), float(event["offset"])
                self._offsets[str(event["node"])].append((t + offset, offset))

    def corrected(self, rows: str, who: str) -> str:
        """SQL: the same rows with `t` on the launcher's clock."""
        offsets = self._offsets.get(self._node_of.get(who, who))
        if not offsets:
            return rows
        # The first one holds for what was before, too.
        known = ", ".join(f"({t!r}::double, {offset!r}::double)" for t, offset in [(0.0, offsets[0][1]), *offsets])
        return (
            f"select rows.* replace (rows.t - clock.ahead as t) from ({rows}) rows "
            f"asof join (values {known}) clock(since, ahead) on rows.t >= clock.since"
        )
