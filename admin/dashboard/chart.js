// Charts: what came, passed, was refused and waits, the limit, and marks of changes. Drawn by uPlot.

import { h } from "./dom.js";
import * as f from "./format.js";
import { choice, quiet, section } from "./parts.js";
import { state } from "./store.js";
import { language, t } from "./text.js";

const HEIGHT = 230;
const SMALL = 84; // px; the panel of what waits
const PIXELS = 2; // for each point at least: more would be a solid block
const FAR = 2.5; // times the limit and what passes: what comes beyond that is drawn above a break of the axis, or these two would be flat; a guess
const USUAL = 0.98; // of the points of what passes; the others are bursts, such as the one that a flood begins with; a guess
const HELD_S = 0.1; // seconds of the limit; less that waits is on its way
const ROOM = 1.3; // of the limit and what passes, up to the break
const HEADROOM = 1.08; // times the highest point
const ABOVE = 0.22; // of the axis; what is above the break
const AROUND = 30; // seconds before and after a change, whose means are told
const UPLOT = "/dashboard/vendor/uplot-1.6.32/uPlot";

/** Fetches what draws charts; nothing else waits for it. */
async function fetchDrawer() {
  const add = (tag, props) =>
    new Promise((resolve, reject) => document.head.append(Object.assign(document.createElement(tag), props, { onload: resolve, onerror: () => reject(new Error("unreachable")) })));
  await Promise.all([add("link", { rel: "stylesheet", href: `${UPLOT}.min.css` }), add("script", { src: `${UPLOT}.iife.min.js` })]);
}

let drawer = null;

/** What draws charts is there; after a failure the next chart tries again. */
function drawn() {
  drawer ??= fetchDrawer().catch((error) => {
    drawer = null;
    throw error;
  });
  return drawer;
}

drawn().catch(() => {}); // the page's banner says that the gateway is away; a chart says so in its place

/** A colour of the style, as a canvas takes it. */
function colour(name) {
  const probe = document.getElementById("said");
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.style.color = "";
  return found;
}

const NAMES = ["received", "forwarded", "refused", "limit", "waiting"];

/** The points of /v1/series for so many pixels: {times, and of each name its means}, and of what comes and passes the least and the most. */
function fitted({ start, step, points }, pixels) {
  const length = points.received?.length || 0;
  const size = Math.max(1, Math.ceil((length * PIXELS) / pixels)); // points in one
  const skipped = size > 1 ? size - (Math.round(start / step) % size) : 0; // so that a point stays in its place while the window moves on
  const found = { times: [], least: [[], []], most: [[], []], size };
  for (const name of NAMES) found[name] = [];
  for (let at = skipped % size; at < length; at += size) {
    found.times.push(start + at * step);
    NAMES.forEach((name, row) => {
      const some = (points[name] || []).slice(at, at + size).filter((value) => value !== null);
      found[name].push(some.length ? (name === "limit" ? some.at(-1) : some.reduce((sum, value) => sum + value, 0) / some.length) : null);
      if (row > 1) return;
      found.least[row].push(some.length ? Math.min(...some) : null);
      found.most[row].push(some.length ? Math.max(...some) : null);
    });
  }
  return found;
}

/** As uPlot has them. */
const columns = ({ times, received, forwarded, refused, limit, least, most }) => [times, received, forwarded, refused, limit, most[0], least[0], most[1], least[1]];

const peakOf = (values) => (values || []).reduce((most, value) => Math.max(most, value || 0), 0);

const scales = new WeakMap(); // series -> its axis

/** The axis of a chart, messages per second: up to `top`, with a break where far more comes than what passes and the limit. */
function axisOf(series) {
  if (!scales.has(series)) {
    const { received, forwarded, refused, limit } = series.points;
    const passed = (forwarded || []).filter((value) => value !== null).sort((one, other) => one - other);
    const low = Math.max(passed[Math.floor((passed.length - 1) * USUAL)] || 0, peakOf(limit));
    const most = Math.max(1, low, peakOf(received), peakOf(forwarded), peakOf(refused)) * HEADROOM;
    const at = low > 0 && most > FAR * low ? low * ROOM : most; // the break
    const top = most + at * 1e-6; // uPlot takes no new axis where its top is the same
    const factor = at < most ? (at * ABOVE) / (1 - ABOVE) / (top - at) : 1; // what is above it is smaller by
    scales.set(series, { top, at, fwd: (value) => (value > at ? at + (value - at) * factor : value), bwd: (value) => (value > at ? at + (value - at) / factor : value) });
  }
  return scales.get(series);
}

/** Values that the axis names: round ones below the break, and the top one. */
function ticks({ top, at }) {
  const step = nice(at / 5);
  const found = [];
  for (let value = 0; value <= at; value += step) found.push(value);
  if (hasBreak({ top, at })) found.push(top / HEADROOM);
  return found;
}

const hasBreak = ({ top, at }) => top > 1.01 * at;

function nice(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return power * [1, 2, 5, 10].find((each) => each * power >= number);
}

/** Where the axis has a break: a gap through the chart, and a sign at the axis. */
function breakPlugin(element) {
  const paint = [colour("--raised"), colour("--quiet")];
  return {
    hooks: {
      draw: ({ ctx, bbox, valToPos }) => {
        const axis = axisOf(element.series);
        if (!hasBreak(axis)) return;
        const y = valToPos(axis.at, "y", true);
        const size = devicePixelRatio;
        ctx.save();
        ctx.fillStyle = paint[0];
        ctx.fillRect(bbox.left - 6 * size, y - 2 * size, bbox.width + 6 * size, 4 * size);
        ctx.strokeStyle = paint[1];
        ctx.lineWidth = size;
        for (const dy of [-2, 2]) {
          ctx.beginPath();
          ctx.moveTo(bbox.left - 8 * size, y + (dy + 3) * size);
          ctx.lineTo(bbox.left + 8 * size, y + (dy - 3) * size);
          ctx.stroke();
        }
        ctx.restore();
      },
    },
  };
}

/** Vertical lines where a limit was changed, drawn over the chart. */
function marksPlugin(marks) {
  const paint = colour("--mark");
  return {
    hooks: {
      draw: (plot) => {
        const { ctx, bbox } = plot;
        ctx.save();
        ctx.strokeStyle = ctx.fillStyle = paint;
        ctx.lineWidth = devicePixelRatio;
        ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
        for (const mark of marks.current) {
          const x = Math.round(plot.valToPos(mark.ts, "x", true));
          if (x < bbox.left || x > bbox.left + bbox.width) continue;
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
          ctx.beginPath();
          ctx.moveTo(x - 5 * devicePixelRatio, bbox.top);
          ctx.lineTo(x + 5 * devicePixelRatio, bbox.top);
          ctx.lineTo(x, bbox.top + 7 * devicePixelRatio);
          ctx.fill();
        }
        ctx.restore();
      },
    },
  };
}

function options(width, element, waits) {
  const { marks, span } = element;
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
  const line = (name, token, more = {}) => ({ label: t(name), stroke: colour(token), width: 1.5, points: { show: false }, ...more });
  const edge = { points: { show: false }, width: 0 };
  const y = waits ? { range: (_, __, high) => [0, Math.max(1, high * 1.1)] } : { distr: 100, fwd: (value) => axisOf(element.series).fwd(value), bwd: (value) => axisOf(element.series).bwd(value), range: () => [0, axisOf(element.series).top] };
  return {
    width,
    height: waits ? SMALL : HEIGHT,
    padding: [8, 32, waits ? 8 : 0, 0], // to the right of both panels alike
    legend: { live: false, show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 }, sync: { key: element.dataset.sync ||= String(Math.random()) } },
    scales: { x: { time: true, range: (plot, low, high) => [Math.max(high - span.current, Math.min(low, high - span.current / 8)), high] }, y },
    axes: [
      { ...axis, show: !waits, space: 80, size: 30, values: (_, all, __, ___, step) => all.map((at) => new Date(at * 1000).toLocaleTimeString(language() === "zh" ? "zh-CN" : "en-GB", { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) })) },
      { ...axis, size: 52, values: (_, all) => all.map((value) => f.number(value)), ...(waits ? { space: 25 } : { splits: () => ticks(axisOf(element.series)), filter: (_, all) => all }) },
    ],
    series: waits ? [{}, line("waiting", "--limit", { fill: colour("--waiting-fill") })] : [
      {},
      line("received", "--received"),
      line("passed", "--passed", { fill: colour("--passed-fill") }),
      line("refused", "--refused"),
      line("limit", "--limit", { dash: [6, 4], width: 2 }),
      edge, edge, edge, edge,
    ],
    bands: waits ? [] : [{ series: [5, 6], fill: colour("--received-fill") }, { series: [7, 8], fill: colour("--passed-fill") }],
    plugins: [marksPlugin(marks), ...(waits ? [] : [breakPlugin(element)])],
  };
}

/** What the pointer is over, in words, under the chart. */
function readout(element, plot, marks) {
  const at = plot.cursor.idx;
  const out = element.querySelector(".readout");
  if (at === null || at === undefined) {
    out.textContent = "";
    return;
  }
  const { times, size, least, most, ...all } = element.fitted;
  const near = marks.current.filter((mark) => Math.abs(mark.ts - times[at]) <= Math.max(3, (times.at(-1) - times[0]) / 200));
  const rate = (name, row) => `${t(name === "forwarded" ? "passed" : name)} ${f.rate(all[name][at])}${size > 1 && row !== undefined ? ` (${f.number(least[row][at])} – ${f.number(most[row][at])})` : ""}`;
  const words = [f.moment(times[at] * 1000, true), rate("received", 0), rate("forwarded", 1), rate("refused")];
  if (all.limit[at] !== null) words.push(rate("limit"));
  if (all.waiting[at]) words.push(`${t("waiting")} ${f.count(Math.round(all.waiting[at]))}`);
  for (const mark of near) words.push(`▾ ${mark.by}: ${mark.reason || mark.what}`);
  out.textContent = words.join(" · ");
}

const waitsIn = ({ points: { waiting, limit } }) => peakOf(waiting) > Math.max(1, HELD_S * peakOf(limit));
const widthOf = (element) => Math.max(200, element.clientWidth || 600);

function mount(element, props) {
  const marks = { current: props.series?.marks || [] };
  const boxes = [document.createElement("div"), document.createElement("div")];
  const out = document.createElement("p");
  out.className = "readout";
  element.append(...boxes, out);
  const fit = () => (element.fitted = fitted(element.series, widthOf(element) - 60));
  const make = () => {
    for (const each of element.plots) each.destroy();
    fit();
    const data = [columns(element.fitted), ...(waitsIn(element.series) ? [[element.fitted.times, element.fitted.waiting]] : [])];
    element.plots = data.map((each, at) => {
      const plot = new uPlot(options(widthOf(element), element, at > 0), each, boxes[at]);
      plot.over.addEventListener("mousemove", () => readout(element, plot, marks));
      plot.over.addEventListener("mouseleave", () => (out.textContent = ""));
      boxes[at].querySelector("canvas").setAttribute("aria-hidden", "true");
      return plot;
    });
    element.plot = element.plots[0];
  };
  Object.assign(element, { series: props.series, marks, plots: [], span: { current: props.series.step === 1 ? 900 : 86_400 } }); // seconds that are shown, though there may be fewer yet
  element.draw = () => {
    if (element.plots.length !== 1 + waitsIn(element.series)) return make();
    fit();
    element.plot.setData(columns(element.fitted));
    element.plots[1]?.setData([element.fitted.times, element.fitted.waiting]);
  };
  element.attach = () => drawn().then(() => {
    if (!element.isConnected) return;
    out.textContent = "";
    make();
    element.watch = new ResizeObserver(() => {
      for (const [at, each] of element.plots.entries()) each.setSize({ width: widthOf(element), height: at ? SMALL : HEIGHT });
      element.draw();
    });
    element.watch.observe(element);
    element.theme = new MutationObserver(make);
    element.theme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "lang"] });
    element.media = matchMedia("(prefers-color-scheme: dark)");
    element.media.onchange = make;
  }, () => {
    out.textContent = t("unreachable");
    element.failed = true; // the next points try again
  });
  element.attach();
}

function update(element, props) {
  if (element.series === props.series) return;
  element.series = props.series;
  element.marks.current = props.series.marks || [];
  if (element.failed) {
    element.failed = false;
    element.attach();
  }
  if (element.plot) element.draw();
}

function unmount(element) {
  element.watch?.disconnect();
  element.theme?.disconnect();
  if (element.media) element.media.onchange = null;
  for (const each of element.plots) each.destroy();
}

/** The last change that the chart shows, with what came, passed and was refused before and after it. */
function change(series) {
  const mark = series.marks.at(-1);
  if (!mark || series.step > 1) return null;
  const at = mark.ts - series.start;
  const mean = (name, from, to) => {
    const some = (series.points[name] || []).slice(Math.max(0, from), Math.max(0, to)).filter((value) => value !== null);
    return some.length ? some.reduce((sum, value) => sum + value, 0) / some.length : null;
  };
  const pair = (name) => [mean(name, at - AROUND, at), mean(name, at + 2, at + 2 + AROUND)].map(f.rate).join(" → ");
  return h("p", { class: "change", key: "change" }, t("change_effect", { at: f.moment(mark.ts * 1000, true), by: mark.by, why: mark.reason || mark.what, limit: pair("limit"), received: pair("received"), passed: pair("forwarded"), refused: pair("refused") }));
}

/** A chart of an answer of /v1/series, with its key, and a sentence for whoever cannot see it. */
function chart(series, label, limit, key) {
  if (!series) return h("p", { class: "quiet chart-wait" }, t("loading"));
  const last = (name) => (series.points[name] || []).findLast((value) => value !== null && value !== undefined);
  const peak = peakOf(series.points.received);
  const spoken = t("chart_spoken", { label, received: f.rate(last("received")), passed: f.rate(last("forwarded")), refused: f.rate(last("refused")), peak: f.rate(peak), marks: series.marks.length });
  const names = ["received", "passed", "refused", limit && series.points.limit?.some((value) => value !== null) && "limit", waitsIn(series) && "waiting", series.marks.length && "mark"].filter(Boolean);
  return h(
    "figure",
    { class: "chart", key },
    h("figcaption", null, h("span", { class: "unseen" }, spoken), names.map((name) => h("span", { class: `key ${name}`, key: name, "aria-hidden": "true" }, t(name === "mark" ? "changes_marked" : name)))),
    h("div", { class: "plot", mount, update, unmount, series, key: "plot" }),
    change(series),
  );
}

/** Who is not in the sum that the chart shows: workers that have not answered, and the other gateways of the fleet. */
function absent(series) {
  const others = (state.snapshot?.fleet?.gateways || 1) - 1;
  return [
    series?.missing?.length > 0 && h("p", { class: "notice missing", role: "status", key: "workers" }, t("missing_workers", { workers: series.missing.join(", ") })),
    others > 0 && quiet(t("missing_gateways", { n: others, fleet: state.snapshot.fleet.name, gateway: state.session.gateway }), "gateways"),
  ];
}

/** The part of a screen with a chart of `data.series`, and the choice of its range. `charts`: of screen_data.points(). */
export const traffic = (data, charts, label, { limit = true, beside } = {}) =>
  section("chart", t("traffic"), [beside, choice(t("range"), [["15m", t("range_15m")], ["24h", t("range_24h")]], data.range, charts.choose)],
    data.series && !data.series.known ? quiet(t("no_series")) : chart(data.series, label, limit, data.range), absent(data.series));
