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
  window.headway = { page, curves, moved, data, everything, say, shown: () => shown };
  for (const [path, id] of Object.entries(page.ids)) names[path] = page.names[id];
  for (const collection of page.collections) for (const chart of collection.charts) {
    const plot = $(`plot-${chart.id}`);
    lazily(plot, async () => {
      await draw(plot, chartFigure(chart));
      plot.on("plotly_click", (event) => goToRun(event.points[0].customdata));
    });
  }
  if ($("learn-axis")) {
    const learnPlots = ["loss", "accuracy"].map((what) => [$(`plot-learn-${what}`), what]).filter(([plot]) => plot);
    const again = () => {
      sayLearnable();
      for (const [plot, what] of learnPlots) if (plot.dataset.drawn) draw(plot, learning(what));
    };
    findLearnable();
    offerLearnable(again);
    sayLearnable();
    for (const [plot, what] of learnPlots) lazily(plot, () => draw(plot, learning(what)));
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
      // With Ctrl, Alt or Cmd the keys are the browser's: + and - zoom the page, arrows go back.
      if (!shown || !shown.run.timeline || event.ctrlKey || event.altKey || event.metaKey) return;
      const line = shown.run.timeline, [from, to] = shown.range || [line.start, line.end], wide = to - from;
      const zooms = { "+": [0.2, -0.2], "=": [0.2, -0.2], "-": [-0.3, 0.3], 0: [-Infinity, Infinity] };
      const shifts = { ArrowLeft: Math.max(-0.2 * wide, line.start - from), ArrowRight: Math.min(0.2 * wide, line.end - to) };
      if (!(event.key in zooms) && !(event.key in shifts)) return;
      event.preventDefault();
      const [low, high] = event.key in zooms ? zooms[event.key].map((part) => part * wide) : [shifts[event.key], shifts[event.key]];
      setRange(from + low, to + high);
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
