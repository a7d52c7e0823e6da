"use strict";
// Draws the charts of a page of pyddpdiag by Plotly, and makes them reachable by keyboard. Loads nothing.
(function () {
  const root = document.documentElement;
  const told = document.getElementById("page-data");
  const figures = told ? JSON.parse(told.textContent) : {};
  const plots = Array.from(document.querySelectorAll(".plot"));
  const NARROW = 620;
  const A4 = 700;
  const SHEET = 840;

  function colours() {
    const style = getComputedStyle(root);
    const get = (name) => style.getPropertyValue(name).trim();
    return { ink: get("--ink"), dim: get("--dim"), line: get("--line"), paper: get("--paper"), low: get("--low"), high: get("--high") };
  }

  function wrapped(text, width) {
    // At blanks only; a name without any is cut.
    const lines = [""];
    for (const word of text.split(" ")) {
      const last = lines[lines.length - 1];
      if (last && last.length + word.length + 1 > width) lines.push(word);
      else lines[lines.length - 1] = last ? last + " " + word : word;
    }
    return lines.map((line) => (line.length > width + 6 ? line.slice(0, width + 4) + "…" : line)).join("<br>");
  }

  // The figure as it is drawn now: in the page's colours, at its width.
  function dressed(figure, width) {
    const c = colours();
    const copy = structuredClone(figure);
    const layout = copy.layout;
    const narrow = width < NARROW;
    layout.width = width;
    layout.paper_bgcolor = "rgba(0,0,0,0)";
    layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { color: c.ink, size: narrow ? 11 : 12, family: "system-ui, sans-serif" };
    layout.hoverlabel = { bgcolor: c.paper, bordercolor: c.dim, font: { color: c.ink }, align: "left" };
    if (narrow || matchMedia("(pointer: coarse)").matches) layout.dragmode = false;
    if (narrow) layout.margin = { ...layout.margin, l: 44, r: 8 };
    for (const [key, axis] of Object.entries(layout)) {
      if (!/^[xy]axis/.test(key)) continue;
      axis.gridcolor = c.line;
      axis.linecolor = c.line;
      axis.tickcolor = c.line;
      if (axis.ticktext && key[0] === "y") {
        const room = narrow ? 16 : 40;
        axis.ticktext = axis.ticktext.map((text) => wrapped(text, room));
        // A row for each label: high enough for all of its lines.
        const lines = Math.max(...axis.ticktext.map((text) => text.split("<br>").length));
        const drawn = layout.height - layout.margin.t - layout.margin.b;
        if (lines > 1) layout.height += Math.max(0, axis.ticktext.length * (lines * 15 + 6) - drawn);
      }
      if (axis.ticktext && key[0] === "x") {
        const needed = axis.ticktext.reduce((sum, text) => sum + text.length * 7 + 10, 0);
        if (needed > width - layout.margin.l - layout.margin.r) axis.tickangle = -60;
      }
    }
    for (const note of layout.annotations || []) {
      const callout = note.name === "callout";
      note.font = { color: callout ? c.ink : c.dim, size: 12, weight: callout ? 700 : 400 };
      if (callout && narrow) note.text = wrapped(note.text, 26);
    }
    for (const shape of layout.shapes || []) shape.line.color = c.dim;
    // A legend of several rows takes its room above the picture.
    if (layout.showlegend) {
      const names = copy.data.filter((trace) => trace.showlegend).map((trace) => trace.name.length * 7 + 50);
      let rows = 1, used = 0;
      for (const name of names) {
        if (used + name > width - layout.margin.l - layout.margin.r && used > 0) { rows += 1; used = 0; }
        used += name;
      }
      const more = (rows - 1) * 20 + (layout.annotations.length ? 18 : 0);
      const drawn = layout.height - layout.margin.t - layout.margin.b;
      layout.margin.t += more;
      layout.height += more;
      layout.legend.y = 1 + (layout.annotations.length ? 24 : 6) / drawn;
    }
    // No chart is taller than a sheet of paper, less its title.
    if (root.classList.contains("printing")) layout.height = Math.min(layout.height, SHEET);
    for (const trace of copy.data) {
      if (trace.meta && trace.meta.heat) {
        trace.colorscale = [[0, c.low], [1, c.high]];
        trace.colorbar.tickfont = { color: c.ink };
        // Read on every colour between the two ends.
        trace.textfont = { color: c.ink };
        if (narrow) trace.showscale = false;
      }
      if (trace.meta && trace.meta.marked) trace.marker.line = { color: c.ink, width: 3 };
      if (trace.meta && trace.meta.labels) trace.hovertext = trace.customdata.map((at) => trace.meta.labels[at]);
    }
    return copy;
  }

  function nameOf(plot) {
    const select = plot.dataset.choice && document.getElementById(plot.dataset.choice);
    return select ? plot.dataset.chart + "-" + select.value : plot.dataset.chart;
  }

  function draw(plot, width) {
    const figure = dressed(figures[nameOf(plot)], Math.floor(width || plot.clientWidth));
    plot.style.height = figure.layout.height + "px";
    const config = { displaylogo: false, displayModeBar: false, doubleClick: "reset", showTips: false };
    const done = Plotly.react(plot, figure.data, figure.layout, config);
    if (!plot.dataset.drawn) {
      plot.dataset.drawn = "yes";
      plot.on("plotly_click", (event) => {
        const point = event.points[0];
        const meta = point && point.data.meta;
        if (!meta || !meta.picks) return;
        const picked = { chooser: meta.picks, key: String(point.customdata) };
        document.dispatchEvent(new CustomEvent("pick", { detail: picked }));
      });
    }
    // What it shows is said in words beside it; its single labels would only be noise.
    for (const svg of plot.querySelectorAll("svg")) svg.setAttribute("aria-hidden", "true");
    return done;
  }

  function drawAll(width) { return Promise.all(plots.map((plot) => draw(plot, width))); }

  // Keys on a focused chart: arrows move it, plus and minus zoom, 0 shows all.
  function keyed(plot, key) {
    const layout = plot._fullLayout;
    if (!layout || !layout.xaxis) return false;
    const axis = layout.xaxis, yaxis = layout.yaxis;
    if (key === "0") { Plotly.relayout(plot, { "xaxis.autorange": true, "yaxis.autorange": plot.layout.yaxis.autorange || true }); return true; }
    const [low, high] = axis.range, width = high - low, middle = (low + high) / 2;
    const zooms = { "+": 0.6, "=": 0.6, "-": 1 / 0.6 }, moves = { ArrowLeft: -0.2, ArrowRight: 0.2 };
    if (zooms[key]) { Plotly.relayout(plot, { "xaxis.range": [middle - width * zooms[key] / 2, middle + width * zooms[key] / 2] }); return true; }
    if (moves[key]) { Plotly.relayout(plot, { "xaxis.range": [low + width * moves[key], high + width * moves[key]] }); return true; }
    const lifts = { ArrowUp: 0.2, ArrowDown: -0.2 };
    if (lifts[key] && yaxis.type !== "category" && plot.layout.yaxis.tickvals) {
      const [bottom, top] = yaxis.range, tall = top - bottom;
      Plotly.relayout(plot, { "yaxis.range": [bottom + tall * lifts[key], top + tall * lifts[key]] });
      return true;
    }
    return false;
  }

  document.addEventListener("chosen", (event) => {
    for (const plot of plots) if (plot.dataset.choice === event.detail) draw(plot);
  });
  for (const plot of plots) {
    plot.addEventListener("keydown", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey && keyed(plot, event.key)) event.preventDefault();
    });
  }

  root.dataset.ready = "";
  let width = root.clientWidth, waiting = 0;
  addEventListener("resize", () => {
    if (root.clientWidth === width || root.classList.contains("printing")) return;
    width = root.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => drawAll(), 150);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
  addEventListener("beforeprint", () => { root.classList.add("printing"); drawAll(A4); });
  addEventListener("afterprint", () => { root.classList.remove("printing"); drawAll(); });
  (async function () {
    for (const plot of plots) {
      await draw(plot);
      // The page stays usable while the others are drawn.
      await new Promise((next) => setTimeout(next));
    }
    root.dataset.ready = "yes";
  })();
})();
