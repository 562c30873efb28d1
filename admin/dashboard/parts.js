// Pieces that several screens have: heads with the API's path, sections, tables, bars, badges, small charts, forms, errors.

import { h } from "./dom.js";
import * as f from "./format.js";
import { amend, otherThanProduce, topicLink } from "./router.js";
import { redraw } from "./store.js";
import { t } from "./text.js";

const TAIL = 10; // letters of a routing key that are never cut off
const LENGTHY = 32; // letters, from which on a text in a table may be broken anywhere

/** A screen's head: its name, the API's path that says the same, and the way to it as CSV: the path of a list, or what rows() makes. */
export function head(title, api, csv) {
  return h(
    "div",
    { class: "head" },
    h("h1", { id: "title", tabindex: "-1" }, title),
    h(
      "p",
      { class: "twin" },
      h("a", { href: api, target: "_blank", rel: "noopener", title: t("api_title") }, h("code", null, `GET ${api}`)),
      typeof csv === "string" ? csvButton(csv) : csv,
    ),
  );
}

/** The way to a list as CSV. */
export const csvButton = (path) => h("a", { class: "button small", href: `${path}${path.includes("?") ? "&" : "?"}format=csv`, download: "" }, "CSV");

/** A screen as CSV, where the API has no list of it. `read()`: rows of texts. A cell that a spreadsheet would run gets an apostrophe. */
export function csvOf(name, read) {
  const cell = (value) => `"${String(value ?? "").replace(/^[=+\-@\t\r\n]/, "'$&").replaceAll('"', '""')}"`;
  return button("CSV", () => {
    const href = URL.createObjectURL(new Blob([read().map((row) => `${row.map(cell).join(",")}\r\n`).join("")], { type: "text/csv" }));
    Object.assign(document.createElement("a"), { href, download: `sluice-${name}.csv` }).click();
    URL.revokeObjectURL(href);
  }, { class: "small" });
}

/** A part of a screen with its title, and what stands beside that. */
export function section(id, title, beside, ...content) {
  const name = h("h2", { id: `${id}-title` }, title);
  return h("section", { key: id, "aria-labelledby": `${id}-title` }, beside ? h("div", { class: "bar-head" }, name, beside) : name, content);
}

/** A text that clients or people chose: it may be long, or run from right to left. */
export const given = (text) => h("bdi", { class: text?.length > LENGTHY ? "lengthy" : null }, text || "–");

/** A client's or broker's address: never broken within. */
export const address = (text) => h("bdi", { class: "address" }, text || "–");

export const quiet = (text, key) => h("p", { class: "quiet", key }, text);

export const button = (text, onclick, props) => h("button", { type: "button", onclick, ...props }, text);

export const buttons = (...all) => h("div", { class: "buttons" }, all);

export function problem(error) {
  if (!error) return null;
  const text = error.status === 0 ? t("unreachable") : error.status === 403 ? t("forbidden") : error.message;
  return h("p", { class: "fault", role: "alert" }, text, error.requestId && h("small", null, ` ${t("request")} ${error.requestId}`));
}

/** A column from a word: `name`, `name=title` or `name=title:kind`; kind: number, wide, or spoken (its title is for screen readers). */
function column(word) {
  const [names, kind] = word.split(":");
  const [name, title] = names.split("=");
  return { name, kind, title: t(title || name) };
}

/** A table in a box that scrolls by itself where the window is narrow. columns: words, as `column` reads them; rows: {key, cells}. */
export function table(label, columns, rows, { empty, className = "" } = {}) {
  if (!rows.length) return quiet(empty || t("nothing_here"));
  const all = columns.split(" ").map(column);
  const cell = (row, { name, kind, title }, at) => h(at ? "td" : "th", { class: kind, scope: at ? null : "row", key: name, "data-title": title }, row.cells[name]);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    h(
      "table",
      { class: className },
      h("caption", { class: "unseen" }, label),
      h("thead", null, h("tr", null, all.map(({ name, kind, title }) => h("th", { scope: "col", class: kind, key: name }, kind === "spoken" ? h("span", { class: "unseen" }, title) : title)))),
      h("tbody", null, rows.map((row) => h("tr", { key: row.key, class: row.className }, all.map((one, at) => cell(row, one, at))))),
    ),
  );
}

/** Names with their values; what there is none of is left out. */
export const pairs = (all, label = t) =>
  h("dl", { class: "pairs" }, all.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false).map(([name, value]) => h("div", { key: name }, h("dt", null, label(name)), h("dd", null, value))));

export const figures = (...all) => h("dl", { class: "figures" }, all);

export const figure = (name, value, bad, more) => h("div", { key: name, class: bad ? "figure bad" : "figure" }, h("dt", null, t(name)), h("dd", null, value, more));

/** How much of a limit is used. */
export function bar(share) {
  if (share === null || share === undefined) return "–";
  const level = share >= 0.98 ? "full" : share >= 0.8 ? "high" : "";
  return h("span", { class: "bar" }, h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: `fill ${level}`, style: { width: `${Math.min(100, share * 100)}%` } })), h("span", { class: "share" }, f.percent(share)));
}

export const badge = (text, kindOf = "") => h("span", { class: `badge ${kindOf}` }, text);

/** What is done with a topic's messages, where they are not published. */
export const operationBadge = ({ operation }) => badge(t(`of_${operation}`));

export const protocolBadge = (name) => badge({ amqp: "RabbitMQ", rocketmq: "RocketMQ" }[name] || name);

/** A topic's name in one line, as long as there is room: it loses first what stands before the routing key, then that key's middle. */
function cutName(item) {
  const name = f.topicName(item);
  const at = name.lastIndexOf(" / ") + 1;
  const key = [...name.slice(at && at + 2)];
  return h("bdi", { class: "cut" }, h("span", { class: "front" }, name.slice(0, at && at + 2)), h("span", { class: "body" }, key.slice(0, -TAIL).join("")), h("span", null, key.slice(-TAIL).join("")));
}

/** A topic's name as a link to its screen. */
export function topicAnchor(item, more, cut) {
  return h("a", { href: topicLink(item, more || ""), title: item.topic, class: "topic" }, (cut ? cutName(item) : given(f.topicName(item))), otherThanProduce(item) && [" ", operationBadge(item)]);
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

/** A form's field: `children(props)` makes the input, with the attributes by which a screen reader finds the hint and the error. */
export function field(id, label, children, { hint, error } = {}) {
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || null;
  return h("div", { class: error ? "field wrong" : "field" }, h("label", { for: id }, label), children({ id, "aria-invalid": error ? "true" : null, "aria-describedby": described }),
    hint && h("p", { class: "hint", id: `${id}-hint` }, hint), error && h("p", { class: "error", id: `${id}-error`, role: "alert" }, error));
}

/** A line to write in: `into[name]` is what stands there. */
export const input = (into, name, more) => (props) => h("input", { value: into[name], autocomplete: "off", spellcheck: "false", oninput: (event) => (into[name] = event.target.value), ...props, ...more });

/** One of `options` ([value, text]): `into[name]` is the one chosen. */
export const select = (into, name, options, more) => (props) =>
  h("select", { onchange: (event) => (into[name] = event.target.value), ...props, ...more }, options.map(([value, text]) => h("option", { key: value, value, selected: into[name] === value }, text)));

/** A field to search with; what is typed stands in the address, and in `by.q`. */
export const search = (by, hint, then) => [
  h("label", { for: "search" }, t("search")),
  input(by, "q", { id: "search", type: "search", placeholder: hint, oninput: (event) => {
    by.q = event.target.value;
    amend({ q: by.q });
    then?.();
    redraw();
  } })(),
];

/** A question in front of everything; the keyboard stays in it, and Escape says no. */
export function dialog(title, onclose, className, ...children) {
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
    button(text, () => onchange(name), { key: name, title, "aria-pressed": String(name === value) })));
}

/** Who has most of what is refused or waits: "10.1.0.9 (billing) 67 % of it". `account`: of a topic, or of a limit that is over. */
export const culprit = ({ client, user, group, client_share: share }) =>
  client ? t("alarm_who", { client, user: [user, group].some(Boolean) ? ` (${[user, group].filter(Boolean).join(", ")})` : "", share: f.percent(share) }) : "";

/** The part that is refused of what comes, or of what is settled: what has waited is refused when nothing comes, too. */
export const refusedShare = ({ received_per_second: received, forwarded_per_second: passed, refused_per_second: refused }, over = refused) => over / Math.max(received, passed + refused, 1e-9);

/** What a topic's limit does to it now, as `account` of /v1/topics has it: in a sentence; "" where it does nothing. */
export function accountText(now) {
  const { state, first_waited_seconds: first, last_waits_seconds: last, unrefused_because: because } = now.account;
  const values = { n: f.count(now.waiting), share: f.percent(refusedShare(now, now.refused_per_second || now.account.would_refuse_per_second)), first: first ? t("first_waited", { time: f.duration(first) }) : "", last: last === null ? t("never_passes") : f.duration(last), because: because && t(`because_${because}`), limit: f.limitText(now.limit) };
  return state === "within" ? "" : t(`account_${state}`, values);
}

/** The state of a topic in a word or three. */
export const stateWord = ({ state, unrefused_because: because }) => t(`account_${because === "spool" ? because : state}_word`);

/** How long a message that comes now will wait: behind those that wait already. */
export const waitText = ({ account, waiting, wait_ms: wait }) => (account.state !== "waiting" && !account.last_waits_seconds ? f.milliseconds(wait) : account.last_waits_seconds === null ? t("never_passes") : f.duration(account.last_waits_seconds));

/** Where a limit comes from, in a word. */
export const originText = (origin) => (origin ? t(`origin_${origin.replace(/[+-]/, "_")}`) : "–");
