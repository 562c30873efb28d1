// All topics: sorted, searched and cut by the gateway; the page asks for the rows in its window, and draws no others.

import { get } from "./api.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { address, badge, button, head, problem, quiet, search, stateWord, topicAnchor, waitText } from "./parts.js";
import { amend, limitPath, topicLink } from "./router.js";
import { refresh } from "./screen_data.js";
import { liveTopic, may, redraw, state, topicKey } from "./store.js";
import { t } from "./text.js";

const PHONE = matchMedia("(max-width: 40rem)");
const ROW = PHONE.matches ? 62 : 37; // px; the style's height of a row
const SPARE = 12; // rows asked for and drawn above and below the window
const SECONDS = 2; // between two looks

// What a column shows, and the order of the API that it is sorted by. Those for phones come first.
const COLUMNS = [
  { name: "topic", sort: "name" },
  { name: "rate", sort: "rate", number: true },
  { name: "state", sort: "worst" },
  { name: "who" },
  { name: "refused", sort: "refused", number: true, wideOnly: true },
  { name: "waiting", sort: "waiting", number: true, wideOnly: true },
  { name: "wait", sort: "wait", number: true, wideOnly: true },
  { name: "limit", number: true, wideOnly: true },
  { name: "used", sort: "used", number: true, wideOnly: true },
  { name: "would_refuse", sort: "would_refuse", number: true, wideOnly: true },
  { name: "edit", wideOnly: true },
];

export default function topics(_, query) {
  const data = { items: [], first: 0, total: 0, error: null, loaded: false };
  const by = { q: query.get("q") || "", sort: query.get("sort") || "worst" };
  let top = 0;
  let height = 600;
  let scroller = null;
  const sizes = new ResizeObserver(([entry]) => { // to ask for it while a screen is drawn would cost a layout of all
    height = entry.contentRect.height;
    look();
  });

  const begin = () => Math.max(0, Math.floor(top / ROW) - SPARE);
  const api = () => `/v1/topics?sort=${by.sort}${by.q ? `&q=${encodeURIComponent(by.q)}` : ""}`;
  const lists = refresh(data, async (signal) => {
    const [first, asked] = [begin(), api()];
    const found = await get(`${asked}${first ? `&offset=${first}` : ""}&limit=${Math.ceil(height / ROW) + 2 * SPARE}`, { signal });
    if (asked !== api()) return lists.now(); // another order or search was chosen meanwhile
    Object.assign(data, { items: found.items, first, total: found.total, loaded: true });
  }, SECONDS);

  /** What is in the window is not what was asked for. */
  function look() {
    redraw();
    if (data.loaded) lists.now();
  }

  function sortBy(name) {
    by.sort = name;
    amend({ sort: name === "worst" ? "" : name });
    toTop();
  }

  function toTop() {
    top = 0;
    if (scroller) scroller.scrollTop = 0;
    look();
  }

  function cells(item) {
    const fresh = liveTopic(item);
    const now = fresh ? { ...item, ...fresh } : item;
    const { state: what, client } = now.account;
    return {
      topic: topicAnchor(now, null, true),
      rate: f.rate(now.received_per_second),
      state: what === "within" ? "–" : badge(stateWord(now.account), what === "refused" ? "bad" : "warn"),
      who: address(client),
      refused: now.refused_per_second > 0 ? f.rate(now.refused_per_second) : "0",
      waiting: f.count(now.waiting),
      wait: waitText(now),
      limit: f.limitText(now.limit),
      used: f.percent(now.used),
      would_refuse: f.count(now.shadow_refused),
      edit: limitPath(item) && h("a", { class: "button small", href: topicLink(item, { edit: "1" }), "aria-label": `${t("edit")}: ${f.topicName(item)}` }, t("edit")),
    };
  }

  const columns = () => COLUMNS.filter(({ name }) => (name !== "edit" || may("operator")) && (name !== "would_refuse" || by.sort === name || data.items.some((item) => item.shadow_refused)));
  const classes = ({ name, number, wideOnly }) => `${number ? "number" : ""} ${wideOnly ? "wide-only" : ""} c-${name}`;

  function row(item, at, shown) {
    const found = cells(item);
    return h("tr", { key: topicKey(item), "aria-rowindex": at + 2, class: item.refused_per_second > 0 ? "bad" : "" }, shown.map((column, number) =>
      h(number ? "td" : "th", { key: column.name, scope: number ? null : "row", class: classes(column) }, found[column.name])));
  }

  function list() {
    const shown = columns();
    const space = (key, rows) => h("tr", { key, class: "space", "aria-hidden": "true", style: { height: `${Math.max(0, rows) * ROW}px` } }, h("td", null));
    return h(
      "div",
      {
        class: "window", tabindex: "0", role: "region", "aria-label": t("topics"),
        onscroll: (event) => {
          top = event.target.scrollTop;
          if (Math.abs(begin() - data.first) >= SPARE / 2) look();
        },
        mount: (element) => {
          scroller = element;
          sizes.observe(element);
        },
        unmount: () => sizes.disconnect(),
      },
      h(
        "table",
        { class: "long", "aria-rowcount": data.total + 1 },
        h("caption", { class: "unseen" }, t("topics")),
        h("thead", null, h("tr", { "aria-rowindex": 1 }, shown.map((column) => {
          const sorted = by.sort === column.sort;
          const title = column.name === "edit" ? h("span", { class: "unseen" }, t("edit")) : t(column.name);
          return h("th", { key: column.name, scope: "col", class: classes(column), "aria-sort": column.sort ? (sorted ? (column.sort === "name" ? "ascending" : "descending") : "none") : null },
            column.sort ? button([title, h("span", { "aria-hidden": "true" }, sorted ? " ▾" : "")], () => sortBy(column.sort), { class: "sort" }) : title);
        }))),
        h("tbody", null, space("above", data.first), data.items.map((item, at) => row(item, data.first + at, shown)), space("below", data.total - data.first - data.items.length)),
      ),
    );
  }

  return {
    title: () => t("topics"),
    leave: lists.stop,
    view: () => [
      head(t("topics"), api(), api()),
      h("div", { class: "tools" },
        search(by, t("search_hint"), toTop),
        h("span", { class: "quiet", role: "status" }, data.loaded && (by.q ? t("topics_found", { n: f.count(data.total), all: f.count(state.snapshot?.topics_known) }) : t("topics_all", { n: f.count(data.total) })))),
      problem(data.error),
      data.loaded && !data.total ? quiet(by.q ? t("none_found") : t("no_traffic")) : list(),
    ],
  };
}
