// Brokers and listeners: whether each broker can be reached or is busy, caps, places, ends of certificates.

import { get } from "./api.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { badge, csvOf, given, head, pairs, problem, protocolBadge, quiet, table } from "./parts.js";
import { refresh } from "./screen_data.js";
import { t } from "./text.js";

const UPSTREAM = { up: "good", down: "bad", held: "warn", untried: "" };

const numbers = (counts) => Object.entries(counts || {}).filter(([, value]) => value).map(([name, value]) => `${name} ${f.count(value)}`).join(", ");

function tls(found) {
  if (!found) return t("mode_off");
  const ends = found.not_after || found.expires || found.certificate_expires;
  return [t("tls_on"), ends && ` · ${t("certificate_ends", { at: f.moment(ends), time: f.until(ends) })}`];
}

const triple = (now, most) => `${f.count(now)} / ${most === null || most === undefined ? t("unlimited") : f.count(most)}`;

function card(item) {
  const busy = numbers(item.broker_busy);
  const reachable = item.upstream_reachable;
  return h(
    "article",
    { class: "card", key: item.name, "aria-labelledby": `listener-${item.name}` },
    h("h2", { id: `listener-${item.name}` }, given(item.name), " ", protocolBadge(item.protocol), " ",
      badge(reachable === false ? t("broker_not_reachable") : reachable ? t("broker_reachable") : t("not_tried"), reachable === false ? "bad" : reachable ? "good" : "")),
    item.upstream_error && h("p", { class: "fault" }, item.upstream_error),
    busy && h("p", { class: "notice" }, t("busy_line", { what: busy })),
    pairs([
      ["listens_on", h("code", null, item.bind)],
      ["connections", triple(item.connections_active, item.max_connections)],
      ["places", item.seats && triple(item.seats.taken, item.seats.most)],
      ["per_address", item.max_connections_per_address && f.count(item.max_connections_per_address)],
      ["per_user_most", item.max_connections_per_user && f.count(item.max_connections_per_user)],
      ["opened", f.count(item.connections_opened)],
      ["closed_by_cause", numbers(item.connections_closed)],
      ["refused_by_cause", numbers(item.connections_refused)],
      ["tls_clients", tls(item.tls)],
      ["tls_broker", tls(item.upstream_tls)],
    ]),
    table(t("addresses_of", { name: item.name }), "address state connections:number error", (item.upstreams || []).map((each) => ({ key: each.address, cells: {
      address: h("code", { class: "address" }, each.address), state: badge(t(`upstream_${each.state}`), UPSTREAM[each.state]), connections: f.count(each.connections), error: each.error || "–",
    } })), { empty: t("no_addresses") }),
    item.caps?.length > 0 && table(t("caps_of", { name: item.name }), "rule state:wide", item.caps.map((cap, at) => ({ key: at, cells: {
      rule: given(cap.rule || cap.name), state: given(Object.entries(cap).filter(([name, value]) => name !== "rule" && value !== null && typeof value !== "object").map(([name, value]) => `${name} ${value}`).join(" · ")),
    } }))),
  );
}

const rows = (items) => [
  ["listener", "protocol", "bind", "address", "state", "connections", "error"],
  ...items.flatMap((item) => (item.upstreams || []).map((each) => [item.name, item.protocol, item.bind, each.address, each.state, each.connections, each.error])),
];

export default function brokers() {
  const data = { items: null, error: null };
  const lists = refresh(data, async (signal) => {
    data.items = (await get("/v1/listeners?limit=500", { signal })).items;
  }, 3);
  return {
    title: () => t("brokers_title"),
    leave: lists.stop,
    view: () => [head(t("brokers_title"), "/v1/listeners", csvOf("brokers", () => rows(data.items || []))), problem(data.error), data.items ? h("div", { class: "cards" }, data.items.map(card)) : quiet(t("loading"))],
  };
}
