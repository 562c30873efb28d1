// Connections: who, in what state, what keeps each from being faster, what is held; and closing one.

import { ask, get } from "./api.js";
import { confirmation } from "./confirm.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { badge, choice, csvOf, head, problem, table, topicAnchor, say } from "./parts.js";
import { amend, go } from "./router.js";
import { refresh } from "./screen_data.js";
import { may, redraw } from "./store.js";
import { t } from "./text.js";

const COLOURS = { running: "good", flow: "", throttled: "warn", blocked: "bad", draining: "warn" };
const SORTS = ["wait", "backlog", "forwarded", "blocked", "age", "name"];

const nameOf = (item) => item.client_properties?.connection_name || item.group || "";
const libraryOf = (item) => (item.client_properties?.product ? `${item.client_properties.product} ${item.client_properties.version || ""}` : item.language ? `RocketMQ ${item.language} ${item.version || ""}` : "");

function bottleneck(item) {
  if (item.bottleneck === "none") return t("bottleneck_none");
  const held = item.held_by ?? (item.bottleneck === "limit" ? item.refused_by : null);
  return [t(`bottleneck_${item.bottleneck}`), held?.topic && [" ", topicAnchor({ protocol: item.protocol, topic: held.topic, operation: held.operation })], held?.rule && ` (${held.rule})`];
}

export function connections({ id }, query) {
  const by = { q: query.get("q") || "", sort: query.get("sort") || "wait" };
  const data = { items: null, total: 0, one: null, error: null };
  const question = confirmation();
  const api = () => `/v1/connections?sort=${by.sort}${by.q ? `&q=${encodeURIComponent(by.q)}` : ""}`;
  const lists = refresh(data, async (signal) => {
    if (id) {
      data.one = await get(`/v1/connections/${encodeURIComponent(id)}`, { signal }).catch((error) => {
        if (error.status === 404) data.one = null;
        throw error;
      });
    } else {
      const page = await get(`${api()}&limit=200`, { signal });
      data.items = page.items;
      data.total = page.total;
    }
  }, 2);

  function close(item) {
    question.ask({ title: t("close_title", { client: item.client }), text: t("close_text"), action: t("close"), danger: true, run: async (reason) => {
      await ask("DELETE", `/v1/connections/${item.id}${reason ? `?reason=${encodeURIComponent(reason)}` : ""}`);
      say(t("closed"));
      if (id) go("/connections");
      else lists.now();
    } });
  }

  const closeButton = (item) => may("operator") && h("button", { type: "button", class: "small danger", onclick: () => close(item), "aria-label": `${t("close")}: ${item.client}` }, t("close"));

  function rows() {
    return data.items.map((item) => ({ key: item.id, cells: {
      client: h("a", { href: `/connections/${item.id}` }, item.client), name: h("bdi", null, nameOf(item) || "–"), user: h("bdi", null, item.user || "–"), protocol: `${item.listener}`,
      state: badge(t(`state_${item.state}`), COLOURS[item.state]), bottleneck: bottleneck(item), held: item.held_messages ? `${f.count(item.held_messages)} · ${f.bytes(item.held_bytes)}` : "0",
      passed: f.count(item.messages_forwarded), age: f.duration(item.age_seconds), close: closeButton(item),
    } }));
  }

  function one(item) {
    const pairs = Object.entries(item).filter(([, value]) => value !== null && value !== "" && !(typeof value === "object" && !Object.keys(value).length));
    return [
      h("p", { class: "crumbs" }, h("a", { href: "/connections" }, `‹ ${t("connections")}`)),
      h("div", { class: "card" }, h("p", null, badge(t(`state_${item.state}`), COLOURS[item.state]), " ", t(`state_${item.state}_means`)), h("p", null, `${t("bottleneck")}: `, bottleneck(item)), libraryOf(item) && h("p", null, `${t("library")}: `, h("bdi", null, libraryOf(item))), h("div", { class: "buttons" }, closeButton(item))),
      h("details", { mount: (element) => (element.open = true) }, h("summary", null, t("all_fields")), h("dl", { class: "pairs" }, pairs.map(([name, value]) => h("div", { key: name }, h("dt", null, h("code", null, name)), h("dd", null, h("bdi", null, typeof value === "object" ? JSON.stringify(value) : String(value))))))),
    ];
  }

  const columns = () => [
    { name: "client", title: t("client") }, { name: "name", title: t("client_name") }, { name: "user", title: t("user") }, { name: "protocol", title: t("listener") }, { name: "state", title: t("state") },
    { name: "bottleneck", title: t("bottleneck"), wide: true }, { name: "held", title: t("waiting"), number: true }, { name: "passed", title: t("passed"), number: true }, { name: "age", title: t("age"), number: true },
    ...(may("operator") ? [{ name: "close", title: "", spoken: t("close") }] : []),
  ];

  return {
    title: () => t("connections"),
    leave: () => lists.stop(),
    view: () => [
      head(id ? t("connection_named", { id }) : t("connections"), id ? { api: `/v1/connections/${encodeURIComponent(id)}` } : { api: api(), csv: csvOf(api()) }),
      problem(data.error?.status === 404 ? { status: 404, message: t("connection_gone") } : data.error),
      id ? data.one && one(data.one) : [
        h("div", { class: "tools", key: "tools" }, h("label", { for: "search" }, t("search")), h("input", { id: "search", type: "search", value: by.q, placeholder: t("search_connections"), autocomplete: "off", oninput: (event) => {
          by.q = event.target.value;
          amend({ q: by.q });
          lists.now();
          redraw();
        } }), choice(t("sorted_by"), SORTS.map((name) => [name, t(`sort_${name}`)]), by.sort, (name) => {
          by.sort = name;
          amend({ sort: name });
          lists.now();
          redraw();
        }), h("span", { class: "quiet", role: "status" }, t("connections_n", { n: f.count(data.total) }))),
        data.items ? table(t("connections"), columns(), rows(), { empty: t("no_connections") }) : h("p", { class: "quiet", key: "wait" }, t("loading")),
        data.items && data.total > data.items.length && h("p", { class: "quiet", key: "more" }, t("and_more", { n: f.count(data.total - data.items.length) })),
      ],
      question.view(),
    ],
  };
}
