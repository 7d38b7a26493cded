// --- the time line of one run ----------------------------------------------------------------------------------
const values = (series) => series.values.map((one) => (one === null ? null : one * series.unit));
let shown = null;  // the run whose time line is drawn
const rowsOf = (line) => Object.keys(WHAT).filter((what) => line.series.some((series) => series.what === what));
const timelineFigure = (run) => () => {
  const line = run.timeline, rows = rowsOf(line), nodes = [...new Set(line.series.filter((one) => !isTask(run, one.of)).map((one) => one.of))];
  const place = new Map(nodes.map((node, number) => [node, number]));
  const home = new Map();  // where each node has one task, that is shown and hidden with its node
  for (const node of run.figures.nodes || []) for (const task of node.tasks || []) if (nodes.length > 1 && place.has(node.node)) {
    place.set(task, place.get(node.node));
    if (node.tasks.length === 1) home.set(task, node.node);
  }
  let next = nodes.length > 1 ? nodes.length : 0;
  for (const series of line.series) if (!place.has(series.of)) place.set(series.of, next++);
  const tall = 40 + 118 * rows.length, gap = 24 / tall, lane = 34 / tall, high = (1 - lane) / rows.length - gap;
  const traces = [], look = { xaxis: { title: { text: "seconds since the start" }, anchor: `y${rows.length + 1}`, range: [line.start, line.end] }, annotations: [], shapes: [], hovermode: "x" };
  const named = new Set();
  rows.forEach((what, row) => {
    const top = 1 - lane - gap - row * (high + gap), name = `y${row + 2}`;
    const [words, unit] = WHAT[what];
    look[`yaxis${row + 2}`] = { domain: [Math.max(0, top - high), top], rangemode: "tozero", fixedrange: true, nticks: 4,
      ...(["B", "B/s", "disk"].includes(unit) ? { tickformat: "~s" } : {}) };
    look.annotations.push({ text: `<b>${words}</b>${unit === "B/s" ? " (bit/s)" : unit === "B" ? " (bytes)" : unit === "disk" ? " (bytes/s)" : unit === "s" ? " (seconds)" : ""}`, xref: "paper", yref: "paper", x: 0, y: top, xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 12.5 } });
    for (const series of line.series.filter((one) => one.what === what)) {
      const number = place.get(series.of), is_all = series.of === "all tasks";
      const shade = is_all ? style("--text") : color(number);
      const times = line.axes[series.axis], factor = unit === "B/s" ? 8 : 1;
      const own = values(series);
      traces.push({
        x: times, y: factor === 1 ? own : own.map((one) => (one === null ? null : one * factor)), yaxis: name, mode: "lines", name: safe(series.of), legendgroup: home.get(series.of) || series.of,
        showlegend: !named.has(series.of) && !is_all && !home.has(series.of), line: { color: shade, width: 1.3, dash: is_all ? "solid" : dash(number) },
        text: own.map((one) => say(one, unit)), hovertemplate: `${words}: %{text}<extra>${safe(series.of)}</extra>`,
      });
      named.add(series.of);
    }
  });
  look.yaxis = { domain: [1 - lane, 1], visible: false, range: [-1, 1], fixedrange: true };
  const marks = run.events;
  for (const [kind, symbol, shade, test] of [
    ["trouble", "x", style("--trouble"), (mark) => mark.trouble], ["evaluations", "circle", color(2), (mark) => mark.kind === "evaluation"],
    ["checkpoints", "square", color(4), (mark) => mark.kind === "checkpoint"],
    ["other events", "line-ns-open", style("--soft"), (mark) => !mark.trouble && !["evaluation", "checkpoint"].includes(mark.kind)]]) {
    const these = marks.filter(test);
    if (!these.length) continue;
    traces.push({ x: these.map((mark) => mark.t), y: these.map(() => 0), mode: "markers", name: kind, marker: { symbol, color: shade, size: 9, line: { color: shade, width: 1.5 } },
      text: these.map((mark) => safe(mark.text)), hovertemplate: "%{x:.1f} s: %{text}<extra></extra>", legendgroup: kind });
  }
  for (const mark of marks.filter((one) => one.trouble || ["evaluation", "checkpoint", "measured"].includes(one.kind)).slice(0, 160))
    look.shapes.push({ type: "line", x0: mark.t, x1: mark.t, y0: 0, y1: 1, yref: "paper", layer: "below",
      line: { width: 1, color: mark.trouble ? style("--trouble") : style("--line"), dash: mark.trouble ? "solid" : "dot" } });
  for (const { t, seconds } of line.breaks) {
    look.shapes.push({ type: "line", x0: t, x1: t, y0: 0, y1: 1, yref: "paper", line: { width: 2, color: style("--text"), dash: "dash" } });
    look.annotations.push({ text: `resumed after ${say(seconds, "s")}`, x: t, y: 1, yref: "paper", xanchor: "center", yanchor: "bottom", showarrow: false, font: { size: 12 } });
  }
  if (line.breaks.length) look.xaxis.title.text += ", without the time between launches";
  look.margin = { l: 58, r: 16, t: line.breaks.length ? 28 : 10, b: 76 };
  if (shown && shown.range) look.xaxis.range = shown.range;
  return { traces, look, height: 86 + tall };
};
const isTask = (run, name) => name === "all tasks" || (run.step_times !== null && name in run.step_times.tasks) || name.includes("/");

// What else moved: of every series the middle in the interval against the middle in the rest of the measured time.
const middle = (list) => {
  const sorted = [...list].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};
// What a series reaches when it is high, without the few highest: one outlier must not make all else look small.
const reached = (list) => list.map(Math.abs).sort((a, b) => a - b)[Math.floor(0.95 * (list.length - 1))];
const moved = (run, from, to) => {
  const line = run.timeline, measured = run.events.find((mark) => mark.kind === "measured");
  const begin = measured ? measured.t : line.start, steps = line.series.find((one) => one.of === "all tasks");
  const end = steps ? line.axes[steps.axis][line.axes[steps.axis].length - 1] : line.end;
  const found = [];
  for (const series of line.series) {
    const here = [], rest = [], times = line.axes[series.axis];
    values(series).forEach((value, place) => {
      if (value === null) return;
      if (times[place] >= from && times[place] <= to) here.push(value);
      else if (times[place] >= begin && times[place] <= end) rest.push(value);
    });
    if (here.length < 2 || rest.length < 4) continue;
    const now = middle(here), before = middle(rest), high = reached([...rest, ...here]);
    const spread = 1.4826 * middle(rest.map((value) => Math.abs(value - before)));
    const change = now - before;
    const score = Math.abs(change) / Math.max(spread + 0.02 * Math.abs(before), 1e-12);
    const relative = Math.abs(change) / Math.max(Math.abs(before), Math.abs(now), 1e-12);
    if (score > 3 && relative > 0.1 && Math.abs(change) > 0.02 * high) found.push({ series, now, before, score: Math.min(score, 50) * relative });
  }
  return found.sort((a, b) => b.score - a.score);
};
const showMoved = () => {
  const { run, range } = shown, box = $("moved"), list = $("moved-list"), said = $("moved-said");
  const [from, to] = range || [run.timeline.start, run.timeline.end];
  $("from").value = from.toFixed(1); $("to").value = to.toFixed(1);
  list.textContent = "";
  box.dataset.from = from; box.dataset.to = to;
  if (to - from > 0.9 * (run.timeline.end - run.timeline.start)) {
    said.textContent = "This is the whole run. Drag over a part of the time line, or type its seconds above, and this says what else was different there.";
    return;
  }
  const found = moved(run, from, to), events = run.events.filter((mark) => mark.t >= from && mark.t <= to);
  const many = events.length > 8 ? events.filter((mark) => mark.trouble).slice(0, 8) : events;
  said.textContent = `From ${from.toFixed(1)} s to ${to.toFixed(1)} s, against the rest of the measured time: ` +
    (found.length ? `${found.length} of ${run.timeline.series.length} series moved.` : "no series moved clearly.") +
    (events.length > many.length ? ` ${events.length} events.` : "");
  for (const { series, now, before } of found.slice(0, 14)) {
    const [words, unit] = WHAT[series.what], item = make("li"), up = now > before;
    item.append(make("b", `${series.of}: ${words} `), make("span", up ? "▲ " : "▼ ", up ? "up" : "down"),
      make("span", `${say(before, unit)} → ${say(now, unit)}`));
    list.append(item);
  }
  for (const mark of many) {
    const item = make("li");
    item.append(make("b", `${mark.t.toFixed(1)} s: `), make("span", mark.text));
    list.append(item);
  }
};
const within = (line, from, to) => {
  const low = Math.max(line.start, Math.min(from, to)), high = Math.min(line.end, Math.max(from, to));
  return high > low ? [low, high] : null;
};
const setRange = async (from, to) => {
  const range = shown && shown.run.timeline && within(shown.run.timeline, from, to);
  if (range) await Plotly.relayout($("timeline-plot"), { "xaxis.range": range });
};
const rangeChanged = (change) => {
  const range = change["xaxis.range"] || (change["xaxis.range[0]"] !== undefined ? [change["xaxis.range[0]"], change["xaxis.range[1]"]] : null);
  if (range) shown.range = range.map(Number);
  else if (change["xaxis.autorange"]) shown.range = null;
  else return;
  showMoved();
};
let asked = 0, showing = null;  // requests for time lines, and the last one: an older one must not win over it
const showRun = (id, range) => (showing = drawRun(id, range));
const drawRun = async (id, range) => {
  const mine = ++asked;
  $("which").value = id;
  const run = await data(`data-${id}`);
  if (mine !== asked) return;
  shown = { run, range: range && run.timeline ? within(run.timeline, ...range) : null, id };
  $("timeline-where").textContent = run.name;
  $("timeline-where").href = `#${id}`;
  const plot = $("timeline-plot");
  if (run.timeline) {
    await draw(plot, timelineFigure(run));
    if (mine !== asked) return;
    plot.removeAllListeners("plotly_relayout");
    plot.on("plotly_relayout", rangeChanged);
    showMoved();
  } else {
    forget(plot, "Nothing was sampled in this run.");
    $("moved-said").textContent = "Nothing was sampled in this run.";
    $("moved-list").textContent = "";
    $("from").value = ""; $("to").value = "";
    delete $("moved").dataset.from; delete $("moved").dataset.to;
  }
  await Promise.all([draw($("steps-plot"), stepsFigure(run)), draw($("servers-plot"), serversFigure(run)), draw($("staleness-plot"), stalenessFigure(run))]);
};

// --- more of one run -------------------------------------------------------------------------------------------
const nothing = (words) => ({ traces: [], look: { xaxis: { visible: false }, yaxis: { visible: false }, annotations: [{ text: words, showarrow: false, x: 0.5, y: 0.5, xref: "paper", yref: "paper", font: { color: style("--soft"), size: 14 } }] } });
const stepsFigure = (run) => () => {
  const times = run.step_times;
  if (!times) return nothing("no steps after the warm-up");
  const factor = times.edges[times.edges.length - 1] < 1 ? 1e3 : 1, unit = factor === 1 ? "seconds" : "milliseconds";
  const x = times.edges.slice(1).map((edge, place) => (factor * (edge + times.edges[place])) / 2);
  const traces = Object.entries(times.tasks).map(([task, counts], number) => ({ type: "bar", x, y: counts, name: safe(task), marker: filling(number),
    hovertemplate: `%{y} steps of about %{x:.3g} ${unit}<extra>${safe(task)}</extra>` }));
  return { traces, look: { barmode: "stack", bargap: 0.03, xaxis: { title: { text: `step time, ${unit}${times.beyond ? `<br>last bar: and ${times.beyond} longer, up to ${say(times.most, "s")}` : ""}` } }, yaxis: { title: { text: "steps" } }, showlegend: traces.length > 1, margin: { l: 58, r: 16, t: 14, b: 96 } } };
};
const serversFigure = (run) => () => {
  const servers = run.figures.servers || [], { is_program, num_ps } = run.figures;
  if (!servers.length && is_program) return nothing("not known of a user's own program");
  if (!servers.length && num_ps) return nothing("no variables were placed<br>on the servers");
  if (!servers.length) return nothing("no servers: every training task<br>holds all variables");
  const parts = [0, 1, 2].map((rank) => ({ type: "bar", name: ["largest variable", "second largest", "third largest"][rank], x: servers.map((one) => safe(short(one.task))), y: servers.map((one) => (one.largest[rank] ? one.largest[rank].bytes : 0)),
    text: servers.map((one) => (one.largest[rank] ? `${safe(one.largest[rank].name)}${one.largest[rank].part ? ` (part ${safe(one.largest[rank].part)})` : ""}: ${say(one.largest[rank].bytes, "B")}` : "")), textposition: "none", hoverinfo: "text", marker: filling(rank) }));
  parts.push({ type: "bar", name: "all others", x: servers.map((one) => safe(short(one.task))), y: servers.map((one) => Math.max(0, one.bytes - one.largest.reduce((sum, each) => sum + each.bytes, 0))), hovertemplate: "%{y:.3s}B<extra>all others</extra>", marker: filling(7) });
  return { traces: parts, look: { barmode: "stack", bargap: 0.45, xaxis: { type: "category" }, yaxis: { title: { text: "bytes of variables" }, tickformat: "~s" } } };
};
const stalenessFigure = (run) => () => {
  const stale = run.figures.staleness;
  if (!stale && run.figures.is_program) return nothing("not known of a user's own program");
  if (!stale && run.figures.strategy === "ps-async") return nothing("no gradient was pushed");
  if (!stale) return nothing("no gradient is ever stale<br>in this strategy");
  const keys = Object.keys(stale.histogram).map(Number);
  return { traces: [{ type: "bar", x: keys, y: keys.map((key) => stale.histogram[key] / stale.gradients), marker: { color: color(0) }, hovertemplate: "%{y:.1%} of all gradients were %{x} updates behind<extra></extra>" }],
    look: { xaxis: { title: { text: `updates between pull and push<br>(mean ${digits(stale.mean)})` } }, yaxis: { title: { text: "share of gradients" }, tickformat: ".0%" } } };
};
