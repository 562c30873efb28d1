// All topics: searched, sorted, and only those drawn that are in the window, so that ten thousand are no more work than twenty.

import { pages } from "./api.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { badge, bar, button, head, originText, problem, quiet, search, topicAnchor } from "./parts.js";
import { amend, topicLink } from "./router.js";
import { refresh } from "./screen_data.js";
import { liveTopic, may, redraw, topicKey } from "./store.js";
import { t } from "./text.js";

const ROW = 37; // px; the style's height of a row
const SPARE = 8; // rows drawn above and below the window
const SLOW_ABOVE = 1000; // topics; a longer list is fetched less often

// What a column shows, and what it is sorted by.
const COLUMNS = [
  { name: "topic", sort: (item) => item.search, text: true },
  { name: "rate", sort: (item) => item.received_per_second, number: true },
  { name: "limit", sort: (item) => item.limit?.messages_per_second ?? Infinity, number: true, title: "limit_per_second" },
  { name: "used", sort: (item) => item.used ?? -1 },
  { name: "refused", sort: (item) => item.refused_per_second, number: true },
  { name: "waiting", sort: (item) => item.waiting, number: true, wideOnly: true },
  { name: "wait", sort: (item) => item.wait_ms ?? -1, number: true, title: "last_wait", wideOnly: true },
  { name: "p99_wait", sort: (item) => item.wait_p99_ms ?? -1, number: true, wideOnly: true },
  { name: "last", sort: (item) => item.last || "", title: "last_limited", number: true, wideOnly: true },
  { name: "mode", sort: (item) => item.limit?.mode || "", text: true, wideOnly: true },
  { name: "would_refuse", sort: (item) => item.shadow_refused, number: true, wideOnly: true },
  { name: "origin", sort: (item) => item.limit?.origin || "", text: true, wideOnly: true },
  { name: "edit", title: "edit", wideOnly: true },
];

export default function topics(_, query) {
  const data = { items: [], total: 0, error: null, loaded: false, shown: [] };
  const by = { q: query.get("q") || "", sort: query.get("sort") || "refused", down: query.get("order") !== "up" };
  let top = 0;
  let height = 600;
  let scroller = null;
  const sizes = new ResizeObserver(([entry]) => { // to ask for it while a screen is drawn would cost a layout of all
    height = entry.contentRect.height;
    redraw();
  });

  const lists = refresh(data, async (signal) => {
    const found = [];
    await pages("/v1/topics", (items, total) => {
      for (const item of items) {
        item.search = `${item.topic} ${f.topicName(item)}`.toLowerCase();
        item.key = topicKey(item);
        found.push(item);
      }
      data.total = total;
      if (data.loaded) return;
      data.items = found.slice();
      arrange();
    }, signal);
    const last = await lastLimited(signal);
    for (const item of found) item.last = last.get(item.key) || null;
    data.items = found;
    data.loaded = true;
    arrange();
  }, () => (data.items.length > SLOW_ABOVE ? 15 : 3));

  /** When topics were limited last, by their keys: of those that were, the latest. */
  async function lastLimited(signal) {
    const last = new Map();
    const enough = new Error("enough");
    try {
      await pages("/v1/limits?sort=last_refused", (items) => {
        for (const { level, protocol, operation } of items) {
          if (!level.usage?.last_refused) throw enough;
          if (level.per === "topic") last.set(topicKey({ protocol, operation, topic: level.thing }), level.usage.last_refused);
        }
        if (last.size > 2 * SLOW_ABOVE) throw enough;
      }, signal);
    } catch (error) {
      if (error !== enough) throw error;
    }
    return last;
  }

  function arrange() {
    const words = by.q.toLowerCase().split(/\s+/).filter(Boolean);
    const column = COLUMNS.find((each) => each.name === by.sort) || COLUMNS[4];
    const found = []; // each with what it is sorted by, read once
    for (const item of data.items) if (words.every((word) => item.search.includes(word))) found.push({ item, by: column.sort(item), rate: item.received_per_second });
    const sign = by.down ? -1 : 1;
    found.sort((one, other) => (one.by < other.by ? -sign : one.by > other.by ? sign : other.rate - one.rate || (one.item.search < other.item.search ? -1 : 1)));
    data.shown = found.map((each) => each.item);
    redraw();
  }

  function sortBy(name) {
    const text = COLUMNS.find((each) => each.name === name).text;
    by.down = by.sort === name ? !by.down : !text;
    by.sort = name;
    amend({ sort: name, order: by.down ? "" : "up" });
    toTop();
  }

  function toTop() {
    top = 0;
    if (scroller) scroller.scrollTop = 0;
    arrange();
  }

  function cells(item) {
    const fresh = liveTopic(item);
    const now = fresh ? { ...item, ...fresh, limit: item.limit, used: item.used } : item;
    return {
      topic: topicAnchor(now),
      rate: f.rate(now.received_per_second),
      limit: f.limitText(now.limit),
      used: bar(now.used),
      refused: now.refused_per_second > 0 ? f.rate(now.refused_per_second) : "0",
      waiting: f.count(now.waiting),
      wait: f.milliseconds(now.wait_ms),
      p99_wait: f.milliseconds(now.wait_p99_ms),
      last: item.last ? f.moment(item.last, true) : "–",
      mode: now.limit ? badge(t(`mode_${now.limit.mode}`), now.limit.mode === "enforce" ? "" : "warn") : "–",
      would_refuse: f.count(now.shadow_refused),
      origin: originText(now.limit?.origin),
      edit: may("operator") ? h("a", { class: "button small", href: topicLink(item, { edit: "1" }), "aria-label": `${t("edit")}: ${f.topicName(item)}` }, t("edit")) : null,
    };
  }

  const columns = () => COLUMNS.filter((each) => each.name !== "edit" || may("operator"));

  function row(item, at) {
    const found = cells(item);
    return h("tr", { key: item.key, "aria-rowindex": at + 2, class: item.refused_per_second > 0 ? "bad" : "" }, columns().map((column, number) =>
      h(number ? "td" : "th", { key: column.name, scope: number ? null : "row", class: `${column.number ? "number" : ""} ${column.wideOnly ? "wide-only" : ""} c-${column.name}` }, found[column.name])));
  }

  function list() {
    const first = Math.max(0, Math.floor(top / ROW) - SPARE);
    const end = Math.min(data.shown.length, Math.ceil((top + height) / ROW) + SPARE);
    const space = (key, rows) => h("tr", { key, class: "space", "aria-hidden": "true", style: { height: `${rows * ROW}px` } }, h("td", null));
    return h(
      "div",
      {
        class: "window", tabindex: "0", role: "region", "aria-label": t("topics"),
        onscroll: (event) => {
          if (Math.abs(event.target.scrollTop - top) >= ROW) {
            top = event.target.scrollTop;
            redraw();
          }
        },
        mount: (element) => {
          scroller = element;
          sizes.observe(element);
        },
        unmount: () => sizes.disconnect(),
      },
      h(
        "table",
        { class: "long", "aria-rowcount": data.shown.length + 1 },
        h("caption", { class: "unseen" }, t("topics")),
        h("thead", null, h("tr", { "aria-rowindex": 1 }, columns().map((column) => {
          const sorted = by.sort === column.name;
          const title = t(column.title || column.name);
          return h("th", { key: column.name, scope: "col", class: `${column.number ? "number" : ""} ${column.wideOnly ? "wide-only" : ""} c-${column.name}`, "aria-sort": column.sort ? (sorted ? (by.down ? "descending" : "ascending") : "none") : null },
            column.sort ? button([title, h("span", { "aria-hidden": "true" }, sorted ? (by.down ? " ▾" : " ▴") : "")], () => sortBy(column.name), { class: "sort" }) : h("span", { class: "unseen" }, title));
        }))),
        h("tbody", null, space("above", first), data.shown.slice(first, end).map((item, at) => row(item, first + at)), space("below", data.shown.length - end)),
      ),
    );
  }

  const api = () => `/v1/topics${by.q ? `?q=${encodeURIComponent(by.q)}` : ""}`;
  return {
    title: () => t("topics"),
    leave: lists.stop,
    view: () => [
      head(t("topics"), api(), api()),
      h("div", { class: "tools" },
        search(by, t("search_hint"), toTop),
        h("span", { class: "quiet", role: "status" }, (data.loaded || data.total > 0) && (by.q ? t("topics_found", { n: f.count(data.shown.length), all: f.count(data.total) }) : t("topics_all", { n: f.count(data.total) })))),
      problem(data.error),
      data.loaded && !data.shown.length ? quiet(by.q ? t("none_found") : t("no_traffic")) : list(),
    ],
  };
}
