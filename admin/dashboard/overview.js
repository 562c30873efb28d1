// The first screen: what is wrong, who, since when, and the way out.

import { get } from "./api.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { badge, bar, choice, csvOf, head, originText, spark, table, topicAnchor } from "./parts.js";
import { topicLink } from "./router.js";
import { points } from "./screen_data.js";
import { may, state, topicKey } from "./store.js";
import { t } from "./text.js";

const BUSY_MS = 30_000; // a broker counts as busy for so long after it last said so; the numbers are since the start

/** `limits/amqp/%2F/orders/x` as {protocol, topic}; null where it is no topic's. */
export function topicOf(target) {
  const found = /^limits\/(amqp|rocketmq)\/(.+)$/.exec(target);
  if (!found) return null;
  return { protocol: found[1], topic: found[1] === "amqp" ? found[2] : decodeURIComponent(found[2]) };
}

/** What needs a person, the worst first: {key, level, at, text, item, link}. */
export function alarms(snapshot) {
  const found = [];
  const { listeners, topics } = snapshot;
  const unreachable = listeners.filter((each) => each.upstream_reachable === false);
  for (const reason of snapshot.not_ready_because || []) found.push({ key: `ready ${reason}`, level: "bad", text: t("not_ready_because", { reason }) });
  for (const each of unreachable) found.push({ key: `broker ${each.name}`, level: "bad", text: t("broker_unreachable", { listener: each.name, upstream: each.upstream, error: each.upstream_error || "" }), link: "/brokers" });
  for (const each of listeners) {
    if (each.broker_blocked_connections) found.push({ key: `blocked ${each.name}`, level: "bad", text: t("broker_blocks", { listener: each.name, n: f.count(each.broker_blocked_connections) }), link: "/connections?sort=blocked" });
    const busy = Object.entries(each.broker_busy || {}).filter(([, count]) => count);
    if (Date.now() - (state.busyAt.get(each.name) || 0) < BUSY_MS) found.push({ key: `busy ${each.name}`, level: "warn", text: t("broker_busy", { listener: each.name, what: busy.map(([code, count]) => `${code}: ${f.count(count)}`).join(", ") }), link: "/brokers" });
  }
  for (const over of snapshot.over) {
    const item = over.topic ? { protocol: over.protocol, topic: over.topic, operation: over.operation } : null;
    const now = item && topics.find((each) => topicKey(each) === topicKey(item));
    const rate = now ? now.received_per_second : over.rate;
    const share = now ? now.refused_per_second / Math.max(now.received_per_second, 1e-9) : null;
    const first = now?.clients?.[0];
    const all = (now?.clients || []).reduce((sum, each) => sum + each.refused_per_second, 0);
    const who = over.client ? t("alarm_who", { client: over.client, user: over.user ? ` (${over.user})` : "", share: f.percent(first?.client === over.client && all ? first.refused_per_second / all : null) }) : "";
    const since = new Date(over.since * 1000).toISOString();
    found.push({
      key: `${over.per} ${over.thing} ${over.operation} ${over.rule}`, level: share > 0.5 ? "bad" : "warn", at: since, item, weight: share === null ? over.rate : now.refused_per_second,
      text: t(now?.refused_per_second > 0 ? "alarm_topic" : "alarm_held", { whose: over.per === "topic" ? "" : ` (${t(`per_${over.per}`)} ${over.per === "rule" ? over.rule : over.thing})`, since: f.ago(since), rate: f.number(rate), limit: over.limit, share: f.percent(share), who }),
    });
  }
  for (const text of snapshot.warnings || []) if (!(unreachable.length && /unreachable|cannot be reached/.test(text))) found.push({ key: `warning ${text}`, level: "warn", text });
  if (snapshot.memory_limit?.step > 1) found.push({ key: "memory", level: "bad", text: t("memory_step", { doing: snapshot.memory_limit.doing || snapshot.memory_limit.step }) });
  if (snapshot.event_loop?.lag_ms > 200) found.push({ key: "lag", level: "warn", text: t("lag_high", { lag: f.milliseconds(snapshot.event_loop.lag_ms) }) });
  const rank = { bad: 0, warn: 1 };
  return found.sort((one, other) => rank[one.level] - rank[other.level] || (other.weight || 0) - (one.weight || 0));
}

function healthLine(snapshot) {
  const reachable = snapshot.listeners.every((each) => each.upstream_reachable !== false);
  const { total, without_end: endless } = snapshot.live_changes;
  const quotas = snapshot.quotas;
  return h(
    "p",
    { class: "health" },
    badge(snapshot.draining ? t("draining") : snapshot.ready ? t("ready") : t("not_ready"), snapshot.ready && !snapshot.draining ? "good" : "bad"),
    h("a", { href: "/brokers" }, badge(reachable ? t("broker_reachable") : t("broker_not_reachable"), reachable ? "good" : "bad")),
    h("a", { href: "/changes" }, total ? t("live_changes", { n: total }) + (endless ? t("without_end", { n: endless }) : "") : t("no_live_changes")),
    h("a", { href: "/quotas" }, quotas ? t("quotas_of", { date: quotas.date || f.moment(quotas.computed_at) }) : t("no_quotas")),
    h("span", null, t("rules_rev", { n: snapshot.revision })),
    snapshot.memory_full && badge(t("memory_full"), "bad"),
    snapshot.fleet && h("span", null, t("fleet")),
  );
}

function figures(snapshot) {
  const rates = snapshot.rates;
  const ring = state.ring;
  const seats = Math.max(0, ...snapshot.listeners.map((each) => each.seats?.most || 0));
  const { memory_limit: limit, memory: held } = snapshot;
  const memory = Math.max(limit?.limit_bytes ? limit.size_bytes / limit.limit_bytes : 0, held?.high_watermark ? held.held_bytes / held.high_watermark : 0);
  const one = (name, value, more, className = "") => h("div", { key: name, class: `figure ${className}` }, h("dt", null, t(name)), h("dd", null, value, more));
  return h(
    "dl",
    { class: "figures" },
    one("received", f.rate(rates.received_per_second), spark(ring.map((each) => each[0]), "received")),
    one("passed", f.rate(rates.forwarded_per_second), spark(ring.map((each) => each[1]), "passed")),
    one("waiting", f.count(snapshot.totals.waiting)),
    one("refused", f.rate(rates.refused_per_second), spark(ring.map((each) => each[2]), "refused"), rates.refused_per_second > 0 ? "bad" : ""),
    snapshot.overhead_ms && one("added_p99", f.milliseconds(snapshot.overhead_ms.p99)),
    one("loop_lag", f.milliseconds(snapshot.event_loop?.lag_ms)),
    one("memory", f.percent(memory)),
    one("connections", `${f.count(snapshot.connections)}${seats ? ` / ${f.count(seats)}` : ""}`),
  );
}

export function overview() {
  const data = { series: null, range: "15m" };
  const spoken = new Set();
  const charts = points(null, data, 2);

  function announce(list) {
    const fresh = list.filter((each) => !spoken.has(each.key));
    const gone = [...spoken].filter((key) => !list.some((each) => each.key === key));
    for (const key of gone) spoken.delete(key);
    for (const each of fresh) spoken.add(each.key);
    if (fresh.length) document.getElementById("alarms").textContent = fresh.slice(0, 3).map((each) => (each.item ? `${f.topicName(each.item)} ${each.text}` : each.text)).join(". ");
  }

  function alarmLine(alarm) {
    const { item } = alarm;
    return h(
      "li",
      { key: alarm.key, class: `alarm ${alarm.level}` },
      h("span", { class: "sign", "aria-hidden": "true" }, "⚠"),
      alarm.at && h("time", { datetime: alarm.at }, f.moment(alarm.at, true)),
      h("span", { class: "words" }, item && [topicAnchor(item), " "], alarm.text),
      h("span", { class: "ways" },
        item && h("a", { class: "button small", href: topicLink(item), "aria-label": `${t("look")}: ${f.topicName(item)}` }, t("look")),
        item && may("operator") && h("a", { class: "button small main", href: topicLink(item, { edit: "1" }), "aria-label": `${t("limit_it")}: ${f.topicName(item)}` }, t("limit_it")),
        alarm.link && h("a", { class: "button small", href: alarm.link }, t("look"))),
    );
  }

  function worstNow(snapshot) {
    const rows = snapshot.topics.filter((item) => item.received_per_second > 0 || item.waiting > 0).slice(0, 10).map((item) => {
      const over = state.over.get(topicKey(item));
      const client = (item.clients || []).find((each) => each.refused_per_second > 0);
      const { limit } = item;
      return {
        key: topicKey(item),
        className: item.refused_per_second > 0 ? "bad" : "",
        cells: {
          topic: topicAnchor(item),
          rate: f.rate(item.received_per_second),
          limit: f.limitText(limit),
          used: bar(item.used),
          refused: item.refused_per_second > 0 ? f.rate(item.refused_per_second) : "0",
          wait: f.milliseconds(item.wait_ms),
          since: over ? f.moment(over.since) : "–",
          who: client ? h("bdi", null, client.client) : "–",
          change: limit?.by ? [h("bdi", null, [limit.reason, limit.by].filter(Boolean).join(", ")), ", ", limit.expires ? t("ends_in", { time: f.until(limit.expires) }) : t("no_end")] : limit ? originText(limit.origin) : "–",
        },
      };
    });
    const columns = [
      { name: "topic", title: t("topic"), wide: true }, { name: "rate", title: t("rate"), number: true }, { name: "limit", title: t("limit"), number: true },
      { name: "used", title: t("used") }, { name: "refused", title: t("refused"), number: true }, { name: "wait", title: t("wait"), number: true },
      { name: "since", title: t("since"), number: true }, { name: "who", title: t("who") }, { name: "change", title: t("last_change") },
    ];
    return table(t("worst_now"), columns, rows, { empty: t("no_traffic"), className: "worst" });
  }

  return {
    title: () => t("overview"),
    leave: () => {
      charts.stop();
    },
    view() {
      const snapshot = state.snapshot;
      if (!snapshot) return [head(t("overview"), { api: "/v1/status" }), h("p", { class: "quiet" }, t("loading"))];
      const list = alarms(snapshot);
      announce(list);
      const live = snapshot.live_changes.items;
      return [
        head(t("overview"), { api: "/v1/status" }),
        healthLine(snapshot),
        figures(snapshot),
        h("section", { "aria-labelledby": "alarms-title" }, h("h2", { id: "alarms-title", class: list.length ? "" : "unseen" }, t("alarms")),
          list.length ? h("ul", { class: "alarms" }, list.slice(0, 8).map(alarmLine), list.length > 8 && h("li", { key: "more", class: "quiet" }, t("and_more", { n: list.length - 8 }))) : h("p", { class: "calm" }, t("all_calm"))),
        h("section", { "aria-labelledby": "worst-title" }, h("div", { class: "bar-head" }, h("h2", { id: "worst-title" }, t("worst_now")), h("a", { href: "/topics" }, t("all_topics", { n: f.count(snapshot.topics_known) })), h("a", { class: "button small", href: csvOf("/v1/topics?sort=refused"), download: "" }, "CSV")), worstNow(snapshot)),
        h("section", { "aria-labelledby": "chart-title" }, h("div", { class: "bar-head" }, h("h2", { id: "chart-title" }, t("traffic")), choice(t("range"), [["15m", t("range_15m")], ["24h", t("range_24h")]], data.range, charts.choose)), chart(data.series, { label: t("traffic"), limit: false, key: data.range })),
        live.length > 0 && h("section", { "aria-labelledby": "live-title" }, h("h2", { id: "live-title" }, t("live_now")), table(t("live_now"), [
          { name: "what", title: t("what"), wide: true }, { name: "limit", title: t("limit"), number: true }, { name: "by", title: t("by") }, { name: "reason", title: t("reason") }, { name: "ends", title: t("ends"), number: true },
        ], live.map((each) => {
          const item = topicOf(each.target);
          return { key: each.target, cells: {
            what: item ? topicAnchor(item) : h("bdi", null, each.target), limit: [each.messages, each.bytes].filter(Boolean).join(" · ") || "–", by: h("bdi", null, each.by), reason: h("bdi", null, each.reason || "–"),
            ends: each.expires ? t("ends_in", { time: f.until(each.expires) }) : t("no_end"),
          } };
        }))),
      ];
    },
  };
}
