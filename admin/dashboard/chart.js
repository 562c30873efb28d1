// Charts: what came, passed and was refused, the limit, and marks of changes. Drawn by uPlot.

import { h } from "./dom.js";
import * as f from "./format.js";
import { choice, quiet, section } from "./parts.js";
import { redraw, state } from "./store.js";
import { language, t } from "./text.js";

const HEIGHT = 230;
const FAR = 2.5; // times the limit and what passes: what comes beyond that is cut off at the top, or these two would be flat; a guess
const USUAL = 0.98; // of the points of what passes; the others are bursts, such as the one that a flood begins with; a guess
const ROOM = 1.3; // of the limit and what passes, to the top of the chart that cuts the rest off
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

/** The points of /v1/series as uPlot has them: times, then one list for each field. */
function columns(series) {
  const length = series.points.received?.length || 0;
  const times = Array.from({ length }, (_, at) => series.start + at * series.step);
  const none = new Array(length).fill(null);
  const points = series.points;
  return [times, points.received || none, points.forwarded || none, points.refused || none, points.limit || none];
}

const peakOf = (values) => (values || []).reduce((most, value) => Math.max(most, value || 0), 0);

const scales = new WeakMap(); // series -> the top that its limit and what passes need, and the top that all of it needs

/** The top of a chart, messages per second: of all that comes; or, where that is far more, of what passes (but for a burst) and its limit. */
function topOf(series, whole) {
  if (!scales.has(series)) {
    const { received, forwarded, refused, limit } = series.points;
    const passed = (forwarded || []).filter((value) => value !== null).sort((one, other) => one - other);
    const low = Math.max(passed[Math.floor((passed.length - 1) * USUAL)] || 0, peakOf(limit));
    scales.set(series, { low, high: Math.max(low, peakOf(received), peakOf(forwarded), peakOf(refused)) });
  }
  const { low, high } = scales.get(series);
  const far = low > 0 && high > FAR * low;
  return { far, top: far && !whole ? low * ROOM : high * 1.08 };
}

/** A strip along the upper edge, with arrows, where a line is beyond it. */
function beyondPlugin(element) {
  const lines = [[1, colour("--received")], [3, colour("--refused")], [2, colour("--passed")]];
  return {
    hooks: {
      draw: (plot) => {
        const { ctx, bbox, data } = plot;
        const most = plot.scales.y.max;
        const size = devicePixelRatio;
        if (element.whole) return;
        ctx.save();
        lines.forEach(([column, paint], row) => {
          ctx.fillStyle = paint;
          const y = bbox.top + row * 9 * size;
          let arrow = -Infinity;
          data[0].forEach((time, at) => {
            if (!(data[column][at] > most)) return;
            const x = plot.valToPos(time, "x", true);
            const next = at + 1 < data[0].length ? plot.valToPos(data[0][at + 1], "x", true) : x + size;
            if (next < bbox.left) return;
            const from = Math.max(bbox.left, x);
            ctx.fillRect(from, y, Math.max(size, Math.min(next, bbox.left + bbox.width) - from), 3 * size);
            if (x - arrow < 60 * size || x < bbox.left + 8 * size) return;
            arrow = x;
            ctx.beginPath();
            ctx.moveTo(x - 5 * size, y + 8 * size);
            ctx.lineTo(x + 5 * size, y + 8 * size);
            ctx.lineTo(x, y);
            ctx.fill();
          });
        });
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

function options(width, element) {
  const { marks, span } = element;
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
  const line = (name, token, more = {}) => ({ label: t(name), stroke: colour(token), width: 1.5, points: { show: false }, value: (_, value) => f.rate(value), ...more });
  return {
    width,
    height: HEIGHT,
    legend: { live: false, show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: true, range: (plot, low, high) => [Math.max(high - span.current, Math.min(low, high - span.current / 8)), high] }, y: { range: () => [0, Math.max(1, topOf(element.series, element.whole).top)] } },
    axes: [
      { ...axis, space: 80, size: 30, values: (_, ticks, __, ___, step) => ticks.map((at) => new Date(at * 1000).toLocaleTimeString(language() === "zh" ? "zh-CN" : "en-GB", { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) })) },
      { ...axis, size: 52, values: (_, ticks) => ticks.map((value) => f.number(value)) },
    ],
    series: [
      {},
      line("received", "--received"),
      line("passed", "--passed", { fill: colour("--passed-fill") }),
      line("refused", "--refused"),
      line("limit", "--limit", { dash: [6, 4], width: 2 }),
    ],
    plugins: [marksPlugin(marks), beyondPlugin(element)],
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
  const [times, received, passed, refused, limit] = plot.data;
  const near = marks.current.filter((mark) => Math.abs(mark.ts - times[at]) <= Math.max(3, (times.at(-1) - times[0]) / 200));
  const words = [f.moment(times[at] * 1000, true), `${t("received")} ${f.rate(received[at])}`, `${t("passed")} ${f.rate(passed[at])}`, `${t("refused")} ${f.rate(refused[at])}`];
  if (limit[at] !== null && limit[at] !== undefined) words.push(`${t("limit")} ${f.rate(limit[at])}`);
  for (const mark of near) words.push(`▾ ${mark.by}: ${mark.reason || mark.what}`);
  out.textContent = words.join(" · ");
}

function mount(element, props) {
  const marks = { current: props.series?.marks || [] };
  const box = document.createElement("div");
  const out = document.createElement("p");
  out.className = "readout";
  element.append(box, out);
  const make = () => {
    element.plot?.destroy();
    const plot = new uPlot(options(Math.max(200, element.clientWidth || 600), element), columns(element.series), box);
    plot.over.addEventListener("mousemove", () => readout(element, plot, marks));
    plot.over.addEventListener("mouseleave", () => (out.textContent = ""));
    element.plot = plot;
    const canvas = box.querySelector("canvas");
    canvas.setAttribute("aria-hidden", "true");
  };
  element.series = props.series;
  element.whole = props.whole;
  element.marks = marks;
  element.span = { current: props.series.step === 1 ? 900 : 86_400 }; // seconds that are shown, though there may be fewer yet
  element.attach = () => drawn().then(() => {
    if (!element.isConnected) return;
    out.textContent = "";
    make();
    element.watch = new ResizeObserver(() => element.plot?.setSize({ width: Math.max(200, element.clientWidth), height: HEIGHT }));
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
  if (element.series === props.series && element.whole === props.whole) return;
  element.series = props.series;
  element.whole = props.whole;
  element.marks.current = props.series.marks || [];
  if (element.failed) {
    element.failed = false;
    element.attach();
  }
  element.plot?.setData(columns(props.series));
}

function unmount(element) {
  element.watch?.disconnect();
  element.theme?.disconnect();
  if (element.media) element.media.onchange = null;
  element.plot?.destroy();
}

/** A chart of an answer of /v1/series, with its key, and a sentence for whoever cannot see it. */
function chart(series, label, limit, key, whole) {
  if (!series) return h("p", { class: "quiet chart-wait" }, t("loading"));
  const last = (name) => (series.points[name] || []).findLast((value) => value !== null && value !== undefined);
  const peak = peakOf(series.points.received);
  const name = (text, peak) => (peak > topOf(series, whole).top ? t("beyond", { name: t(text), peak: f.rate(peak) }) : t(text));
  const spoken = t("chart_spoken", { label, received: f.rate(last("received")), passed: f.rate(last("forwarded")), refused: f.rate(last("refused")), peak: f.rate(peak), marks: series.marks.length });
  const items = [["received", name("received", peak)], ["passed", name("passed", peakOf(series.points.forwarded))], ["refused", name("refused", peakOf(series.points.refused))], limit && ["limit", t("limit")], series.marks.length && ["mark", t("changes_marked")]].filter(Boolean);
  return h(
    "figure",
    { class: "chart", key },
    h("figcaption", null, h("span", { class: "unseen" }, spoken), items.map(([name, text]) => h("span", { class: `key ${name}`, key: name, "aria-hidden": "true" }, text))),
    h("div", { class: "plot", mount, update, unmount, series, whole, key: "plot" }),
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
  section("chart", t("traffic"), [beside, data.series?.known && topOf(data.series).far && choice(t("scale"), [["", t("scale_limit")], ["all", t("scale_all")]], data.scale || "", (name) => {
    data.scale = name;
    redraw();
  }), choice(t("range"), [["15m", t("range_15m")], ["24h", t("range_24h")]], data.range, charts.choose)],
    data.series && !data.series.known ? quiet(t("no_series")) : chart(data.series, label, limit, data.range, data.scale === "all"), absent(data.series));
