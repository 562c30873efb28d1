// Pieces that several screens have: heads with the API's path, tables, bars, badges, small charts, errors.

import { h } from "./dom.js";
import * as f from "./format.js";
import { topicLink } from "./router.js";
import { t } from "./text.js";

/** A screen's head: its name, the API's path that says the same, and the list as CSV. */
export function head(title, { api, csv, more } = {}) {
  return h(
    "div",
    { class: "head" },
    h("h1", { id: "title", tabindex: "-1" }, title),
    more,
    h(
      "p",
      { class: "twin" },
      api && h("a", { href: api, target: "_blank", rel: "noopener", title: t("api_title") }, h("code", null, `GET ${api}`)),
      csv && h("a", { class: "button small", href: csv, download: "" }, "CSV"),
    ),
  );
}

/** The address of a list as CSV. */
export const csvOf = (path) => `${path}${path.includes("?") ? "&" : "?"}format=csv`;

export function problem(error) {
  if (!error) return null;
  const text = error.status === 0 ? t("unreachable") : error.status === 403 ? t("forbidden") : error.message;
  return h("p", { class: "fault", role: "alert" }, text, error.requestId && h("small", null, ` ${t("request")} ${error.requestId}`));
}

/** A table in a box that scrolls by itself where the window is narrow. columns: {name, title, number, narrow}; rows: {key, cells}. */
export function table(label, columns, rows, { empty, sort, onSort, className = "" } = {}) {
  if (!rows.length) return h("p", { class: "quiet" }, empty || t("nothing_here"));
  const headers = columns.map((column) => {
    const sorted = sort && sort.name === column.sort;
    const aria = column.sort ? (sorted ? (sort.down ? "descending" : "ascending") : "none") : null;
    const content = column.sort && onSort
      ? h("button", { type: "button", class: "sort", onclick: () => onSort(column.sort) }, column.title, h("span", { "aria-hidden": "true" }, sorted ? (sort.down ? " ▾" : " ▴") : ""))
      : column.title || h("span", { class: "unseen" }, column.spoken || t("actions"));
    return h("th", { scope: "col", class: kind(column), "aria-sort": aria, key: column.name }, content);
  });
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    h(
      "table",
      { class: className },
      h("caption", { class: "unseen" }, label),
      h("thead", null, h("tr", null, headers)),
      h("tbody", null, rows.map((row) => h("tr", { key: row.key, class: row.className }, columns.map((column, at) =>
        h(at === 0 ? "th" : "td", { class: kind(column), scope: at === 0 ? "row" : null, key: column.name, "data-title": column.title }, row.cells[column.name]))))),
    ),
  );
}

const kind = (column) => [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ") || null;

/** How much of a limit is used. */
export function bar(share) {
  if (share === null || share === undefined) return "–";
  const level = share >= 0.98 ? "full" : share >= 0.8 ? "high" : "";
  return h("span", { class: "bar" }, h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: `fill ${level}`, style: { width: `${Math.min(100, share * 100)}%` } })), h("span", { class: "share" }, f.percent(share)));
}

export const badge = (text, kindOf = "") => h("span", { class: `badge ${kindOf}` }, text);

/** A topic's name as a link to its screen. It is a text that clients choose: it may be long, or run from right to left. */
export function topicAnchor(item, more) {
  return h("a", { href: topicLink(item, more), title: item.topic, class: "topic" }, h("bdi", null, f.topicName(item)), item.operation === "consume" && [" ", badge(t("consume"))]);
}

/** A chart the size of a word: numbers from the oldest on. */
export function spark(values, kindOf) {
  const width = 60;
  const height = 18;
  const top = Math.max(1e-9, ...values);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(height - 1 - (value / top) * (height - 2)).toFixed(1)}`).join(" ");
  return h("svg", { class: `spark ${kindOf}`, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", width, height }, values.length > 1 && h("polyline", { points }));
}

export function field({ id, label, hint, error, children }) {
  return h("div", { class: error ? "field wrong" : "field" }, h("label", { for: id }, label), children, hint && h("p", { class: "hint", id: `${id}-hint` }, hint), error && h("p", { class: "error", id: `${id}-error`, role: "alert" }, error));
}

/** Attributes by which a screen reader finds a field's hint and error. */
export const described = (id, hint, error) => ({
  "aria-invalid": error ? "true" : null,
  "aria-describedby": [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || null,
});

/** A question in front of everything; the keyboard stays in it, and Escape says no. */
export function dialog({ title, children, onclose, className = "" }) {
  return h(
    "dialog",
    {
      key: "dialog",
      class: className,
      "aria-labelledby": "dialog-title",
      mount: (element) => queueMicrotask(() => element.isConnected && element.showModal()),
      oncancel: (event) => {
        event.preventDefault();
        onclose();
      },
    },
    h("h2", { id: "dialog-title" }, title),
    children,
  );
}

/** Tell a screen reader. */
export function say(text) {
  document.getElementById("said").textContent = text;
}

/** One of several, as buttons: a range, a theme. */
export function choice(label, options, value, onchange) {
  return h("span", { class: "choice", role: "group", "aria-label": label }, options.map(([name, text, title]) =>
    h("button", { type: "button", key: name, title, "aria-pressed": String(name === value), onclick: () => onchange(name) }, text)));
}

/** Where a limit comes from, in a word. */
export const originText = (origin) => (origin ? t(`origin_${origin.replace("+", "_")}`) : "–");
