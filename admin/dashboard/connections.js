// Connections: who, in what state, what keeps each from being faster, what is held; and closing one.

import { ask, get } from "./api.js";
import { confirmation } from "./confirm.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { address, badge, button, buttons, choice, given, head, pairs, problem, quiet, say, search, table, topicAnchor } from "./parts.js";
import { amend, go, ofMessages, topicLink } from "./router.js";
import { refresh } from "./screen_data.js";
import { may, redraw } from "./store.js";
import { t } from "./text.js";

const COLOURS = { running: "good", flow: "", throttled: "warn", client_gone: "warn", refused: "bad", blocked: "bad", draining: "warn" };
const COLUMNS = "client state refused:number bottleneck client_name user listener waiting:number passed:number age:number";
const SORTS = ["refused", "wait", "backlog", "forwarded", "blocked", "age", "name"];

const nameOf = (item) => item.client_properties?.connection_name || item.group || "";
const libraryOf = (item) => (item.client_properties?.product ? `${item.client_properties.product} ${item.client_properties.version || ""}` : item.language ? `RocketMQ ${item.language} ${item.version || ""}` : "");

/** In a word. One that passes bytes on as they come, but has messages refused, is not simply "running". */
const stateOf = (item) => (item.refused_by && ["running", "flow"].includes(item.state) ? "refused" : item.state);

/** The topic of which a limit holds or refuses something of it. */
const heldBy = (item) => {
  const held = item.held_by ?? item.refused_by;
  return held?.topic && { protocol: item.protocol, topic: held.topic, operation: held.operation };
};

function bottleneck(item) {
  if (item.bottleneck === "none") return t("bottleneck_none");
  const held = item.held_by ?? (item.bottleneck === "limit" ? item.refused_by : null);
  return [t(`bottleneck_${item.bottleneck}`), held?.topic && [" ", topicAnchor({ protocol: item.protocol, topic: held.topic, operation: held.operation }, null, true)], held?.rule && ` (${held.rule})`];
}

export default function connections({ id }, query) {
  const by = { q: query.get("q") || "", sort: query.get("sort") || "refused" };
  const data = { items: null, total: 0, one: null, error: null };
  const question = confirmation();
  const api = () => id ? `/v1/connections/${encodeURIComponent(id)}` : `/v1/connections?sort=${by.sort}${by.q ? `&q=${encodeURIComponent(by.q)}` : ""}`;
  const lists = refresh(data, async (signal) => {
    if (id) {
      data.one = await get(api(), { signal }).catch((error) => {
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
      await ask("DELETE", `/v1/connections/${item.id}`, { reason });
      say(t("closed"));
      if (id) go("/connections");
      else lists.now();
    } });
  }

  const closeButton = (item) => may("operator") && button(t("close"), () => close(item), { class: "small danger", "aria-label": `${t("close")}: ${item.client}` });

  function rows() {
    return data.items.map((item) => ({ key: item.id, cells: {
      client: h("a", { href: `/connections/${item.id}` }, address(item.client)), client_name: given(nameOf(item)), user: given(item.user), listener: item.listener,
      state: badge(t(`state_${stateOf(item)}`), COLOURS[stateOf(item)]), refused: item.refused_per_second > 0 ? f.rate(item.refused_per_second) : "0", bottleneck: bottleneck(item), waiting: item.held_messages ? `${f.count(item.held_messages)} · ${f.bytes(item.held_bytes)}` : "0",
      passed: f.count(item.messages_forwarded), age: f.duration(item.age_seconds), close: closeButton(item),
    } }));
  }

  function one(item) {
    const all = Object.entries(item).filter(([, value]) => value !== null && value !== "" && !(typeof value === "object" && !Object.keys(value).length));
    return [
      h("p", { class: "crumbs" }, h("a", { href: "/connections" }, `‹ ${t("connections")}`)),
      h("div", { class: "card" }, h("p", null, badge(t(`state_${stateOf(item)}`), COLOURS[stateOf(item)]), " ", t(`state_${stateOf(item)}_means`, { rate: f.rate(item.refused_per_second), n: f.count(item.messages_refused), held: f.count(item.held_messages) })), h("p", null, `${t("bottleneck")}: `, bottleneck(item)), libraryOf(item) && h("p", null, `${t("library")}: `, given(libraryOf(item))), buttons(may("operator") && heldBy(item) && ofMessages(heldBy(item)) && h("a", { class: "button small", href: topicLink(heldBy(item), { act: f.host(item.client) }) }, t("act_limit")), closeButton(item))),
      h("details", { mount: (element) => (element.open = true) }, h("summary", null, t("all_fields")), pairs(all.map(([name, value]) => [name, given(typeof value === "object" ? JSON.stringify(value) : String(value))]), (name) => h("code", null, name))),
    ];
  }

  return {
    title: () => t("connections"),
    leave: lists.stop,
    view: () => [
      head(id ? t("connection_named", { id }) : t("connections"), api(), !id && api()),
      problem(data.error?.status === 404 ? { status: 404, message: t("connection_gone") } : data.error),
      id ? data.one && one(data.one) : [
        h("div", { class: "tools", key: "tools" }, search(by, t("search_connections"), lists.now), choice(t("sorted_by"), SORTS.map((name) => [name, t(`sort_${name}`)]), by.sort, (name) => {
          by.sort = name;
          amend({ sort: name });
          lists.now();
          redraw();
        }), h("span", { class: "quiet", role: "status" }, t("connections_n", { n: f.count(data.total) }))),
        data.items ? table(t("connections"), COLUMNS + (may("operator") ? " close:spoken" : ""), rows(), { empty: t("no_connections"), className: "lines" }) : quiet(t("loading"), "wait"),
        data.items && data.total > data.items.length && quiet(t("and_more", { n: f.count(data.total - data.items.length) }), "more"),
      ],
      question.view(),
    ],
  };
}
