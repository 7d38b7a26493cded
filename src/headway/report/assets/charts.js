// Charts over configurations, and what all charts share. html.py makes one script of the three files here; data lies in
// the page as packed text (gzip, base64). What comes out of it was written by others: it becomes text nodes, or goes
// through `safe` where Plotly would read markup.
const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d1f", "#7a7a7a"];
const DARK = ["#56b4e9", "#ff8c42", "#2fc79b", "#e29bc4", "#f0b429", "#9ad0f5", "#d9c27a", "#b8b8b8"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const PATTERNS = ["", "/", ".", "x"];
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
// Neighbours differ in their dashes, too, and so do those that share a colour.
const dash = (number) => DASHES[(number + Math.floor(number / COLORS.length)) % DASHES.length];
// Of bars that stand on each other: they differ in more than their colour.
const filling = (number) => ({ color: color(number), pattern: { shape: PATTERNS[number % PATTERNS.length], fillmode: "overlay", fgcolor: style("--text"), fgopacity: 0.45, size: 7, solidity: 0.16 }, line: { width: 0 } });

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
    // What rounds up to the next unit is said in it, as units.py does.
    if (Math.abs(value) * 1e6 < 999.5) return `${(value * 1e6).toFixed(0)} µs`;
    if (Math.abs(value) * 1e3 < 999.5) return `${digits(value * 1e3)} ms`;
    if (value < 59.95) return `${value.toFixed(1)} s`;
    const two = (part) => String(part).padStart(2, "0"), whole = Math.round(value), minutes = Math.floor(whole / 60);
    return minutes < 60 ? `${minutes} min ${two(whole % 60)} s` : `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
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
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, tracegroupgap: 0, font: { size: 12 } }, colorway: COLORS, dragmode: "zoom", ...more,
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
  await Plotly.react(plot, traces, layout({ ...look, ...(height ? { height } : {}) }), CONFIG);
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
    return { ...shared, x: series.x, y: series.y, error_y: error, mode: "lines+markers", line: { color: shown, width: 2 },
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
// What can be drawn: each configuration's repeats, and apart from them, under their state, the runs of it that did not
// finish or do not count.
const MOST_AT_FIRST = COLORS.length;
let learnable = null, chosen = new Set();
const findLearnable = () => {
  const { curves, page } = window.headway, isDone = (state) => ["finished", "stopped"].includes(state);
  learnable = [];
  for (const collection of page.collections) for (const group of collection.groups) {
    const parts = new Map([[group.label, group.runs]]);
    for (const path of group.others) {
      const state = page.states[page.ids[path]], label = `${group.label} (${isDone(state) ? "not counted" : state})`;
      parts.set(label, [...(parts.get(label) || []), path]);
    }
    for (const [label, all] of parts) {
      const paths = all.filter((path) => { const known = curves[page.ids[path]]; return known && (known.train || known.test); });
      if (paths.length) learnable.push({ label, paths, number: learnable.length, isDone: isDone(page.states[page.ids[paths[0]]]) });
    }
  }
  // What went wrong is what one wants to see.
  const first = [...learnable].sort((one, other) => one.isDone - other.isDone).slice(0, MOST_AT_FIRST);
  chosen = new Set(first.map((one) => one.number));
};
const isPressed = (id) => $(id).getAttribute("aria-pressed") === "true";
const sayLearnable = () => {
  const count = learnable.length, many = `configuration${count === 1 ? "" : "s"}`;
  const repeats = learnable.some((one) => one.paths.length > 1) ? (isPressed("learn-all") ? ", with all repeats" : ", of each its first repeat") : "";
  $("learn-shown").textContent = `Drawn: ${chosen.size === count ? (count === 1 ? "1" : `all ${count}`) : `${chosen.size} of ${count}`} ${many}${repeats}.`;
};
const offerLearnable = (again) => {
  $("learn-choice").hidden = learnable.length < 2;
  const boxes = learnable.map((one) => {
    const label = make("label"), box = make("input");
    box.type = "checkbox";
    box.checked = chosen.has(one.number);
    box.addEventListener("change", () => { chosen[box.checked ? "add" : "delete"](one.number); again(); });
    label.append(box, make("span", one.label));
    $("learn-which").append(label);
    return box;
  });
  for (const [id, checked] of [["learn-every", true], ["learn-none", false]]) $(id).addEventListener("click", () => {
    for (const box of boxes) box.checked = checked;
    chosen = new Set(checked ? learnable.map((one) => one.number) : []);
    again();
  });
};
const learning = (what) => () => {
  const { curves, page } = window.headway, axis = $("learn-axis").value, raw = isPressed("learn-raw"), all = isPressed("learn-all");
  const traces = [];
  let isResumed = false, isNotFinite = false;
  for (const { label, paths, number } of learnable) for (const path of chosen.has(number) ? (all ? paths : paths.slice(0, 1)) : []) {
    const { train, test, is_resumed } = curves[page.ids[path]], shade = color(number), first = path === paths[0];
    const shared = { legendgroup: String(number), mode: "lines", hovertemplate: `%{y:.4g}<extra>${safe(label)}<br>${safe(names[path])}</extra>` };
    isResumed ||= is_resumed;
    if (what === "loss" && train) {
      isNotFinite ||= train.not_finite !== null;
      const name = safe(label) + (train.not_finite ? `, not finite from step ${train.not_finite.first_step}` : "");
      if (raw) traces.push({ ...shared, x: train[axis], y: train.raw, line: { color: shade, width: 1 }, opacity: 0.28, showlegend: false, hoverinfo: "skip", hovertemplate: undefined });
      traces.push({ ...shared, x: train[axis], y: train.smooth, name, line: { color: shade, width: 2, dash: dash(number) }, showlegend: first });
    }
    if (test && test[what].some((one) => one !== null))
      traces.push({ ...shared, x: test[axis], y: test[what], name: safe(label), mode: "lines+markers", showlegend: first && (what === "accuracy" || !train),
        line: { color: shade, width: 1.6, dash: dash(number) }, marker: { size: 7, color: shade, symbol: number % 8 } });
  }
  if (!traces.some((trace) => trace.y.some((one) => one !== null)))
    return nothing(isNotFinite ? "the loss was never finite" : chosen.size ? `no ${what} is known of what is chosen` : "no configuration is chosen");
  const x = { title: { text: axis === "step" ? "global step" : `seconds since the start${isResumed ? ", without the time between launches" : ""}` } };
  const more = 19 * Math.max(0, legendLines(traces.filter((one) => one.showlegend).map((one) => one.name)) - 2);
  const look = { xaxis: x, yaxis: { title: { text: what === "loss" ? "loss" : "test accuracy" } }, hovermode: "closest", showlegend: true, margin: { l: 58, r: 16, t: 14, b: 84 + more } };
  return { traces, look, height: 340 + more };
};
// Names stand below the chart, one after the other; on paper it is that narrow.
const legendLines = (labels) => Math.ceil(labels.reduce((wide, label) => wide + 48 + 6.5 * label.length, 0) / 400);
