"use strict";
// Everything that moves on the page. Data lies in the page as packed text (gzip, base64); what comes out of it was
// written by others: it becomes text nodes, or goes through `safe` where Plotly would read markup.
(() => {
  const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d1f", "#7a7a7a"];
  const DARK = ["#56b4e9", "#ff8c42", "#2fc79b", "#e29bc4", "#f0b429", "#9ad0f5", "#d9c27a", "#b8b8b8"];
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const WHAT = {
    examples_per_s: ["examples per second", ""], steps_per_s: ["steps per second", ""], step_seconds: ["step time", "s"],
    cpus: ["CPUs in use", ""], throttled: ["CPUs wanted, not given", ""], memory: ["memory", "B"],
    received: ["network in", "B/s"], sent: ["network out", "B/s"], loopback: ["loopback", "B/s"],
    disk_read: ["disk read", "disk"], disk_written: ["disk written", "disk"], credits: ["CPU credits", ""],
  };
  const $ = (id) => document.getElementById(id);
  const safe = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  // Plotly gives up where a label beside an axis leaves no room for the chart.
  const short = (text, most = 40) => (String(text).length > most ? `${String(text).slice(0, most - 1)}…` : String(text));
  const make = (tag, text, name) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  };
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const isDark = () => document.documentElement.dataset.theme === "dark";
  const color = (number) => (isDark() ? DARK : COLORS)[number % COLORS.length];
  const dash = (number) => DASHES[Math.floor(number / COLORS.length) % DASHES.length];

  // --- numbers in words, as words.py has them --------------------------------------------------------------------
  const digits = (value, count = 3) =>
    Math.abs(value) >= 10 ** count ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(count)));
  const scaled = (value, unit, names) => {
    let left = value, place = 0;
    while (Math.abs(left) >= 999.5 && place < names.length - 1) { left /= 1000; place += 1; }
    return `${digits(left)} ${names[place]}${unit}`;
  };
  const say = (value, unit) => {
    if (value === null || value === undefined) return "-";
    if (unit === "s") {
      if (Math.abs(value) < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
      if (Math.abs(value) < 1) return `${digits(value * 1e3)} ms`;
      return value < 60 ? `${value.toFixed(1)} s` : `${Math.floor(value / 60)} min ${String(Math.round(value % 60)).padStart(2, "0")} s`;
    }
    if (unit === "B") return scaled(value, "B", ["", "k", "M", "G", "T"]);
    if (unit === "disk") return `${scaled(value, "B", ["", "k", "M", "G", "T"])}/s`;
    if (unit === "B/s") return scaled(value * 8, "bit/s", ["", "k", "M", "G"]);
    if (unit === "share") return `${digits(value * 100)} %`;
    if (unit === "times") return `${value.toFixed(2)}×`;
    if (unit === "accuracy") return value.toFixed(4);
    if (unit === "dollars") return `$${value.toFixed(value < 0.1 ? 4 : 2)}`;
    return digits(value, 4);
  };

  // --- packed data -----------------------------------------------------------------------------------------------
  const inflate = async (id) => {
    const packed = Uint8Array.from(atob($(id).textContent.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const kept = new Map();
  const data = (id) => {
    if (!kept.has(id)) kept.set(id, inflate(id).then(JSON.parse));
    return kept.get(id);
  };

  // --- how all charts look ---------------------------------------------------------------------------------------
  const CONFIG = { displayModeBar: false, responsive: true };
  const layout = (more) => {
    const axis = { gridcolor: style("--grid"), linecolor: style("--line"), zerolinecolor: style("--line"), automargin: true };
    const base = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: style("--text"), size: 12.5, family: "inherit" },
      margin: { l: 58, r: 16, t: 14, b: more.showlegend ? 80 : 46 }, hoverlabel: { align: "left", font: { family: "inherit" } },
      legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, font: { size: 12 } }, colorway: COLORS, dragmode: "zoom", ...more,
    };
    for (const name of Object.keys(base)) if (/^[xy]axis/.test(name)) base[name] = { ...axis, ...base[name] };
    return base;
  };
  const drawn = new Map();
  const draw = async (plot, figure) => {
    plot.classList.remove("empty");
    if (plot.firstChild && !plot.classList.contains("js-plotly-plot")) plot.textContent = "";
    drawn.set(plot, figure);
    const { traces, look, height } = figure();
    if (height) plot.style.height = `${height}px`;
    await Plotly.react(plot, traces, layout(look), CONFIG);
    plot.dataset.drawn = "yes";
  };
  // Words instead of a chart. Plotly must forget the one before, or the next one is drawn into what is gone.
  const forget = (plot, words) => {
    if (plot.classList.contains("js-plotly-plot")) Plotly.purge(plot);
    drawn.delete(plot);
    delete plot.dataset.drawn;
    plot.classList.remove("js-plotly-plot");
    plot.classList.add("empty");
    plot.style.height = "";
    plot.textContent = words;
  };
  const tickFormat = (unit) => (unit === "share" ? { tickformat: ".0%" } : unit === "dollars" ? { tickprefix: "$" } : {});

  // --- charts over configurations --------------------------------------------------------------------------------
  const names = {};
  const hover = (series, place, unit) => {
    const runs = series.runs ? series.runs[place] : [];
    const low = series.low[place], high = series.high[place];
    const about = runs.length > 1 && low !== high ? `<br>${say(low, unit)} to ${say(high, unit)}` : "";
    const listed = runs.slice(0, 6).map((path) => safe(names[path] || path)).join("<br>");
    return `<b>${say(series.y[place], unit)}</b>${about}<br>${safe(series.labels[place])}<br><span style="font-size:11px">${listed}</span>`;
  };
  const chartFigure = (chart) => () => {
    const unit = chart.y.unit;
    const traces = chart.series.map((series) => {
      const shown = series.color === null ? style("--soft") : color(series.color);
      if (series.style !== "measured") {
        const line = { color: shown, width: series.style === "ideal" ? 1.5 : 1.5, dash: series.style === "ideal" ? "dash" : "dot" };
        return { x: series.x, y: series.y, mode: "lines", name: safe(series.name), line, hoverinfo: series.about ? "text" : "skip",
          text: series.about ? series.x.map(() => safe(series.about)) : undefined };
      }
      const wide = series.y.map((value, place) => (series.high[place] ?? value) - value);
      const narrow = series.y.map((value, place) => value - (series.low[place] ?? value));
      const lies = chart.kind === "bars";  // labels of configurations are long: they stand beside their bars
      const error = { type: "data", symmetric: false, array: wide, arrayminus: narrow, thickness: 1.4, width: 5,
        color: lies ? style("--text") : shown, visible: wide.some((one) => one > 0) || narrow.some((one) => one > 0) };
      const shared = { name: safe(series.name), hoverinfo: "text", text: series.y.map((_, place) => hover(series, place, unit)),
        customdata: series.runs.map((runs) => runs[0]) };
      if (lies) {
        const each = { ...shared, x: series.y, y: series.x.map((_, place) => place), orientation: "h", error_x: error };
        const colors = series.y.map((_, place) => color(place));
        // An axis that does not begin at nothing makes a bar's length a lie.
        if (closeUp(chart)) return { ...each, mode: "markers", marker: { color: colors, size: 12 } };
        return { ...each, type: "bar", textposition: "none", marker: { color: colors } };
      }
      return { ...shared, x: series.x, y: series.y, error_y: error, mode: "lines+markers", line: { color: shown, width: 2, dash: dash(series.color) },
        marker: { color: shown, size: 9, symbol: series.color } };
    });
    const zero = closeUp(chart) ? { range: around(chart) } : { rangemode: "tozero" };
    const value = { title: { text: safe(chart.y.title) }, ...zero, ...tickFormat(unit) };
    if (chart.kind === "bars") {
      // By number: labels that are cut may be the same.
      const labels = chart.series[0].x, named = { tickvals: labels.map((_, place) => place), ticktext: labels.map(folded) };
      const yaxis = { autorange: "reversed", automargin: true, type: "category", ...named };
      return { traces, look: { xaxis: value, yaxis, showlegend: false }, height: Math.max(260, 110 + 38 * labels.length) };
    }
    const x = { title: { text: chart.x.title }, dtick: 1, rangemode: "tozero" };
    if (Math.max(...chart.series.flatMap((series) => series.x)) > 12) delete x.dtick;
    return { traces, look: { xaxis: x, yaxis: value, showlegend: chart.series.length > 1 } };
  };
  const closeUp = (chart) => chart.name === "accuracy" || chart.name === "loss";
  const folded = (label) => {
    const lines = [""];
    for (const part of String(label).split(", ")) {
      const last = lines[lines.length - 1];
      if (last && last.length + part.length > 26) lines.push(part);
      else lines[lines.length - 1] = last ? `${last}, ${part}` : part;
    }
    return lines.map((line) => safe(short(line))).join("<br>");
  };
  // Figures that differ by little are told apart only on an axis that does not begin at nothing.
  const around = (chart) => {
    const all = chart.series.flatMap((series) => [...series.y, ...(series.low || []), ...(series.high || [])]).filter((one) => one !== null);
    const low = Math.min(...all), high = Math.max(...all), pad = Math.max(0.15 * (high - low), 0.02 * Math.abs(high), 1e-6);
    return [low - pad, high + pad];
  };
  const goToRun = (path) => {
    const id = window.headway.page.ids[path];
    if (id) location.hash = id;
  };

  // --- learning --------------------------------------------------------------------------------------------------
  const learning = (plot, what) => () => {
    const { curves, page } = window.headway;
    const axis = $("learn-axis").value, raw = $("learn-raw").getAttribute("aria-pressed") === "true";
    const all = $("learn-all").getAttribute("aria-pressed") === "true";
    const traces = [];
    let number = 0;
    for (const collection of page.collections) for (const group of collection.groups) {
      const paths = group.runs.filter((path) => curves[page.ids[path]]);
      if (!paths.length) continue;
      const shade = color(number), visible = number < 8 ? true : "legendonly";
      for (const path of all ? paths : paths.slice(0, 1)) {
        const { train, test } = curves[page.ids[path]];
        const first = path === paths[0];
        const shared = { legendgroup: String(number), visible, mode: "lines", hovertemplate: `%{y:.4g}<extra>${safe(group.label)}<br>${safe(names[path])}</extra>` };
        if (what === "loss" && train) {
          if (raw) traces.push({ ...shared, x: train[axis], y: train.raw, line: { color: shade, width: 1 }, opacity: 0.28, showlegend: false, hoverinfo: "skip", hovertemplate: undefined });
          traces.push({ ...shared, x: train[axis], y: train.smooth, name: safe(group.label), line: { color: shade, width: 2 }, showlegend: first });
        }
        if (test && test[what].some((one) => one !== null))
          traces.push({ ...shared, x: test[axis], y: test[what], name: safe(group.label), mode: "lines+markers", showlegend: first && (what === "accuracy" || !train),
            line: { color: shade, width: 1.6, dash: what === "loss" ? "dash" : dash(number) }, marker: { size: 6, color: shade, symbol: number % 8 } });
      }
      number += 1;
    }
    const x = { title: { text: axis === "step" ? "global step" : "seconds since the start" } };
    return { traces, look: { xaxis: x, yaxis: { title: { text: what === "loss" ? "loss" : "test accuracy" } }, hovermode: "closest", showlegend: true } };
  };

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
    look.margin = { l: 58, r: 16, t: 10, b: 76 };
    if (shown && shown.range) look.xaxis.range = shown.range;
    return { traces, look, height: 86 + tall };
  };
  const isTask = (run, name) => name === "all tasks" || (run.step_times !== null && name in run.step_times.tasks) || name.includes("/");

  // What else moved: of every series the middle in the interval against the middle in the rest of the measured time.
  const middle = (list) => {
    const sorted = [...list].sort((a, b) => a - b), half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };
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
      const now = middle(here), before = middle(rest), most = Math.max(...rest.map(Math.abs), ...here.map(Math.abs));
      const spread = 1.4826 * middle(rest.map((value) => Math.abs(value - before)));
      const change = now - before;
      const score = Math.abs(change) / (spread + 0.02 * Math.abs(before) + 0.002 * most || 1);
      const relative = Math.abs(change) / Math.max(Math.abs(before), Math.abs(now), 1e-12);
      if (score > 3 && relative > 0.1 && Math.abs(change) > 0.02 * most) found.push({ series, now, before, score: Math.min(score, 50) * relative });
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
    const traces = Object.entries(times.tasks).map(([task, counts], number) => ({ type: "bar", x, y: counts, name: safe(task), marker: { color: color(number), line: { width: 0 } },
      hovertemplate: `%{y} steps of about %{x:.3g} ${unit}<extra>${safe(task)}</extra>` }));
    return { traces, look: { barmode: "stack", bargap: 0.03, xaxis: { title: { text: `step time, ${unit}${times.beyond ? `<br>last bar: and ${times.beyond} longer, up to ${say(times.most, "s")}` : ""}` } }, yaxis: { title: { text: "steps" } }, showlegend: traces.length > 1, margin: { l: 58, r: 16, t: 14, b: 96 } } };
  };
  const serversFigure = (run) => () => {
    const servers = run.figures.servers || [];
    if (!servers.length) return nothing("no servers: every training task<br>holds all variables");
    const parts = [0, 1, 2].map((rank) => ({ type: "bar", name: ["largest variable", "second largest", "third largest"][rank], x: servers.map((one) => safe(short(one.task))), y: servers.map((one) => (one.largest[rank] ? one.largest[rank].bytes : 0)),
      text: servers.map((one) => (one.largest[rank] ? `${safe(one.largest[rank].name)}${one.largest[rank].part ? ` (part ${safe(one.largest[rank].part)})` : ""}: ${say(one.largest[rank].bytes, "B")}` : "")), textposition: "none", hoverinfo: "text", marker: { color: color(rank) } }));
    parts.push({ type: "bar", name: "all others", x: servers.map((one) => safe(short(one.task))), y: servers.map((one) => Math.max(0, one.bytes - one.largest.reduce((sum, each) => sum + each.bytes, 0))), hovertemplate: "%{y:.3s}B<extra>all others</extra>", marker: { color: color(7) } });
    return { traces: parts, look: { barmode: "stack", bargap: 0.45, xaxis: { type: "category" }, yaxis: { title: { text: "bytes of variables" }, tickformat: "~s" } } };
  };
  const stalenessFigure = (run) => () => {
    const stale = run.figures.staleness;
    if (!stale) return nothing("no gradient is ever stale<br>in this strategy");
    const keys = Object.keys(stale.histogram).map(Number);
    return { traces: [{ type: "bar", x: keys, y: keys.map((key) => stale.histogram[key] / stale.gradients), marker: { color: color(0) }, hovertemplate: "%{y:.1%} of all gradients were %{x} updates behind<extra></extra>" }],
      look: { xaxis: { title: { text: `updates between pull and push (mean ${digits(stale.mean)})` } }, yaxis: { title: { text: "share of gradients" }, tickformat: ".0%" } } };
  };

  // --- the page itself -------------------------------------------------------------------------------------------
  const applyTheme = (dark) => {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    $("theme").setAttribute("aria-pressed", String(dark));
    $("theme").textContent = dark ? "Light" : "Dark";
    for (const [plot, figure] of drawn) draw(plot, figure);
  };
  const openTarget = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.tagName === "DETAILS") target.open = true;
    const around = target.closest("details:not([open])");
    if (around) around.open = true;
    target.scrollIntoView();
  };
  const sortBy = (button) => {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const place = [...head.parentNode.children].indexOf(head), down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (line) => { const cell = line.children[place]; return cell.dataset.value !== undefined ? Number(cell.dataset.value) : cell.textContent.trim(); };
    const lines = [...body.rows].sort((a, b) => {
      const one = key(a), other = key(b);
      const order = typeof one === "number" && typeof other === "number" ? one - other : typeof one === "number" ? -1 : typeof other === "number" ? 1 : one.localeCompare(other, "en", { numeric: true });
      return down ? -order : order;
    });
    body.append(...lines);
  };
  const lazily = (plot, start) => {
    let begun = null;
    const begin = () => (begun ??= start().catch((error) => { plot.textContent = "This chart cannot be drawn."; console.error(error); }));
    plot.begin = begin;
    new IntersectionObserver((entries, watcher) => {
      if (entries.some((entry) => entry.isIntersecting)) { watcher.disconnect(); begin(); }
    }, { rootMargin: "500px" }).observe(plot);
  };
  const everything = () => Promise.all([...document.querySelectorAll(".plot")].map((plot) => (plot.begin ? plot.begin() : null)));

  const start = async () => {
    let stored = null;
    try { stored = localStorage.getItem("headway-theme"); } catch { /* a file may have no storage */ }
    applyTheme(stored ? stored === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
    $("theme").addEventListener("click", () => {
      applyTheme(!isDark());
      try { localStorage.setItem("headway-theme", isDark() ? "dark" : "light"); } catch { /* as above */ }
    });
    addEventListener("hashchange", openTarget);
    openTarget();
    // What is folded up is printed, too: on paper nobody can unfold it.
    let closed = [];
    addEventListener("beforeprint", () => {
      closed = [...document.querySelectorAll("details:not([open])")];
      for (const each of closed) each.open = true;
    });
    addEventListener("afterprint", () => { for (const each of closed) each.open = false; });
    for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sortBy(button));
    if (typeof DecompressionStream === "undefined") {
      for (const old of document.querySelectorAll(".old")) old.style.display = "block";
      return;
    }
    const [library, page, curves] = await Promise.all([inflate("plotly"), data("data-page"), data("data-curves")]);
    const script = document.createElement("script");
    script.textContent = library;
    document.head.append(script);
    window.headway = { page, curves, moved, data, everything, shown: () => shown };
    for (const [path, id] of Object.entries(page.ids)) names[path] = page.names[id];
    for (const collection of page.collections) for (const chart of collection.charts) {
      const plot = $(`plot-${chart.id}`);
      lazily(plot, async () => {
        await draw(plot, chartFigure(chart));
        plot.on("plotly_click", (event) => goToRun(event.points[0].customdata));
      });
    }
    for (const what of ["loss", "accuracy"]) {
      const plot = $(`plot-learn-${what}`);
      if (plot) lazily(plot, () => draw(plot, learning(plot, what)));
    }
    const again = () => ["loss", "accuracy"].forEach((what) => { const plot = $(`plot-learn-${what}`); if (plot && plot.dataset.drawn) draw(plot, learning(plot, what)); });
    if ($("learn-axis")) {
      $("learn-axis").addEventListener("change", again);
      for (const id of ["learn-raw", "learn-all"]) $(id).addEventListener("click", () => {
        $(id).setAttribute("aria-pressed", String($(id).getAttribute("aria-pressed") !== "true"));
        again();
      });
    }
    const plot = $("timeline-plot");
    if (plot) {
      const which = $("which");
      lazily(plot, () => showing ?? showRun(which.value));  // somebody may have asked for another one meanwhile
      which.addEventListener("change", () => showRun(which.value));
      const step = (by) => { which.selectedIndex = (which.selectedIndex + by + which.length) % which.length; showRun(which.value); };
      $("previous").addEventListener("click", () => step(-1));
      $("next").addEventListener("click", () => step(1));
      $("whole").addEventListener("click", () => setRange(-Infinity, Infinity));
      const typed = () => setRange(Number($("from").value), Number($("to").value));
      $("zoom").addEventListener("click", typed);
      for (const id of ["from", "to"]) $(id).addEventListener("keydown", (event) => { if (event.key === "Enter") typed(); });
      plot.addEventListener("keydown", (event) => {
        if (!shown || !shown.run.timeline) return;
        const [from, to] = shown.range || [shown.run.timeline.start, shown.run.timeline.end], wide = to - from;
        const moves = { ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2], "+": [0.2, -0.2], "=": [0.2, -0.2], "-": [-0.3, 0.3], 0: [-Infinity, Infinity] };
        if (!(event.key in moves)) return;
        event.preventDefault();
        const [low, high] = moves[event.key];
        setRange(from + low * wide, to + high * wide);
      });
    }
    for (const link of document.querySelectorAll("a[data-run]")) link.addEventListener("click", async (event) => {
      event.preventDefault();
      const from = Number(link.dataset.from), to = Number(link.dataset.to);
      // A moment alone has no width: some of what was before and after it is shown, too.
      const around = Math.max(1, (to - from) * 0.15);
      $("timeline").scrollIntoView();
      await showRun(link.dataset.run, link.dataset.from === undefined ? null : [from - around, to + around]);
      $("timeline-plot").focus({ preventScroll: true });  // arrows and + go on from here
    });
    // On paper: black on white, and as wide as an A4 page that lies on its side.
    let wasDark = false;
    addEventListener("beforeprint", () => {
      wasDark = isDark();
      if (wasDark) applyTheme(false);
      for (const plot of drawn.keys()) Plotly.relayout(plot, { width: plot.id === "timeline-plot" ? 980 : 460 });
    });
    addEventListener("afterprint", () => {
      for (const plot of drawn.keys()) Plotly.relayout(plot, { width: null, autosize: true });
      if (wasDark) applyTheme(true);
    });
    // What is not looked at yet is drawn when there is time: whoever prints the page wants all of it.
    (window.requestIdleCallback || setTimeout)(() => everything());
    document.documentElement.dataset.ready = "yes";
  };
  start().catch((error) => console.error(error));
})();
