// The first screen: what is wrong, who, since when, and the way out.

import { get, poll } from "./api.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { badge, bar, choice, csvOf, head, originText, problem, spark, table, topicAnchor } from "./parts.js";
import { seriesPath, topicLink } from "./router.js";
import { may, redraw, set, state, topicKey } from "./store.js";
import { t } from "./text.js";

/** Live changes in force, the latest of each target, from the history; those that have ended are left out. */
export function liveChanges(entries) {
  const seen = new Set();
  const found = [];
  for (const entry of entries) {
    for (const change of entry.changes || []) {
      if (seen.has(change.target)) continue;
      seen.add(change.target);
      const after = change.after;
      if (!after || change.target.startsWith("quotas")) continue;
      if (after.expires && new Date(after.expires).getTime() <= Date.now()) continue;
      found.push({ target: change.target, revision: entry.revision, ...after, by: after.by || entry.by, at: after.at || entry.at, reason: after.reason || entry.reason });
    }
  }
  return found;
}

/** `limits/amqp/%2F/orders/x` as {protocol, topic}; null where it is no topic's. */
export function topicOf(target) {
  const found = /^limits\/(amqp|rocketmq)\/(.+)$/.exec(target);
  if (!found) return null;
  return { protocol: found[1], topic: found[1] === "amqp" ? found[2] : decodeURIComponent(found[2]) };
}

/** What needs a person, the worst first: {level, at, text, item}. */
export function alarms(snapshot, listeners) {
  const found = [];
  for (const reason of snapshot.not_ready_because || []) found.push({ key: `ready ${reason}`, level: "bad", text: t("not_ready_because", { reason }) });
  for (const listener of listeners) {
    if (listener.upstream_reachable === false)
      found.push({ key: `broker ${listener.name}`, level: "bad", text: t("broker_unreachable", { listener: listener.name, upstream: listener.upstream, error: listener.upstream_error || "" }), link: "/brokers" });
    const busy = Object.entries(listener.broker_busy || {}).filter(([, count]) => count);
    if (busy.length) found.push({ key: `busy ${listener.name}`, level: "warn", text: t("broker_busy", { listener: listener.name, what: busy.map(([code, count]) => `${code}: ${f.count(count)}`).join(", ") }), link: "/brokers" });
  }
  for (const item of snapshot.topics) {
    if (!(item.refused_per_second > 0)) continue;
    const event = state.since.get(topicKey(item));
    const share = item.refused_per_second / Math.max(item.received_per_second, 1e-9);
    const client = (item.clients || [])[0];
    const all = (item.clients || []).reduce((sum, each) => sum + each.refused_per_second, 0);
    const who = client ? t("alarm_who", { client: f.host(client.client), user: event?.user && f.host(client.client) === event.client ? ` (${event.user})` : "", share: f.percent(all ? client.refused_per_second / all : null) }) : "";
    found.push({
      key: topicKey(item), level: share > 0.5 ? "bad" : "warn", at: event?.since, item, weight: item.refused_per_second,
      text: t("alarm_topic", { since: event?.since ? t("for_time", { time: f.ago(event.since) }) : "", rate: f.number(item.received_per_second), limit: event?.limit || f.limitText(item.limit), share: f.percent(share), who }),
    });
  }
  const bare = (snapshot.warnings || []).filter((text) => !/unreachable/.test(text) || !listeners.some((each) => each.upstream_reachable === false));
  for (const text of bare) found.push({ key: `warning ${text}`, level: "warn", text });
  const rank = { bad: 0, warn: 1 };
  return found.sort((one, other) => rank[one.level] - rank[other.level] || (other.weight || 0) - (one.weight || 0));
}

function healthLine(snapshot, listeners, live, quotas) {
  const reachable = listeners.every((each) => each.upstream_reachable !== false);
  const endless = live.filter((each) => !each.expires).length;
  return h(
    "p",
    { class: "health" },
    badge(snapshot.draining ? t("draining") : snapshot.ready ? t("ready") : t("not_ready"), snapshot.ready && !snapshot.draining ? "good" : "bad"),
    listeners.length > 0 && h("a", { href: "/brokers" }, badge(reachable ? t("broker_reachable") : t("broker_not_reachable"), reachable ? "good" : "bad")),
    h("a", { href: "/changes" }, live.length ? t("live_changes", { n: live.length }) + (endless ? t("without_end", { n: endless }) : "") : t("no_live_changes")),
    h("a", { href: "/quotas" }, quotas?.published ? t("quotas_of", { date: quotas.published.date || f.moment(quotas.published.computed_at) }) : t("no_quotas")),
    h("span", null, t("rules_rev", { n: snapshot.revision })),
    snapshot.memory_full && badge(t("memory_full"), "bad"),
  );
}

function figures(snapshot, listeners) {
  const rates = snapshot.rates;
  const ring = state.ring;
  const seats = listeners.length ? Math.max(...listeners.map((each) => each.seats?.most || 0)) : 0;
  const memory = snapshot.memory?.high_watermark ? (snapshot.memory.held_bytes + (snapshot.memory.delivery_bytes || 0)) / snapshot.memory.high_watermark : null;
  const one = (name, value, more, className = "") => h("div", { key: name, class: `figure ${className}` }, h("dt", null, t(name)), h("dd", null, value, more));
  return h(
    "dl",
    { class: "figures" },
    one("received", f.rate(rates.received_per_second), spark(ring.map((each) => each[0]), "received")),
    one("passed", f.rate(rates.forwarded_per_second), spark(ring.map((each) => each[1]), "passed")),
    one("waiting", f.count(snapshot.totals.waiting)),
    one("refused", f.rate(rates.refused_per_second), spark(ring.map((each) => each[2]), "refused"), rates.refused_per_second > 0 ? "bad" : ""),
    snapshot.added_ms && one("added_p99", f.milliseconds(snapshot.added_ms.p99)),
    one("loop_lag", f.milliseconds(snapshot.event_loop?.lag_ms)),
    one("memory", f.percent(memory)),
    one("connections", `${f.count(snapshot.connections)}${seats ? ` / ${f.count(seats)}` : ""}`),
  );
}

export function overview() {
  const data = { listeners: [], worst: [], history: [], quotas: null, series: null, range: "15m", error: null };
  const spoken = new Set();
  let drawn = 0;
  const polls = [
    poll(async (signal) => {
      data.listeners = (await get("/v1/listeners?limit=500", { signal })).items;
      redraw();
    }, 5),
    poll(async (signal) => {
      try {
        data.worst = (await get("/v1/topics?sort=refused&limit=20", { signal })).items;
        data.error = null;
      } catch (error) {
        if (error.name !== "AbortError" && error.status) data.error = error;
        throw error;
      } finally {
        redraw();
      }
    }, 2),
    poll(async (signal) => {
      data.history = (await get("/v1/history?limit=200", { signal })).items;
      data.quotas = await get("/v1/quotas/status", { signal });
      redraw();
    }, 5),
  ];
  let charts = null;
  function draw() {
    charts?.stop();
    charts = poll(async (signal) => {
      data.series = await get(seriesPath(null, data.range), { signal });
      redraw();
    }, data.range === "15m" ? 2 : 10);
  }
  draw();

  function announce(list) {
    drawn += 1;
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

  function worstNow(snapshot, live) {
    const fresh = new Map(snapshot.topics.map((item) => [topicKey(item), item]));
    const changed = new Map(live.map((each) => [each.target, each]));
    const items = data.worst.map((item) => ({ ...item, ...fresh.get(topicKey(item)), limit: item.limit, used: item.used })).filter((item) => item.received_per_second > 0 || item.waiting > 0).slice(0, 10);
    const rows = items.map((item) => {
      const event = state.since.get(topicKey(item));
      const client = (item.clients || []).find((each) => each.refused_per_second > 0);
      const path = `limits/${item.protocol}/${item.protocol === "amqp" ? item.topic : encodeURIComponent(item.topic)}`;
      const change = changed.get(path);
      return {
        key: topicKey(item),
        className: item.refused_per_second > 0 ? "bad" : "",
        cells: {
          topic: topicAnchor(item),
          rate: f.rate(item.received_per_second),
          limit: f.limitText(item.limit),
          used: bar(item.used),
          refused: item.refused_per_second > 0 ? f.rate(item.refused_per_second) : "0",
          wait: f.milliseconds(item.wait_ms),
          since: item.refused_per_second > 0 && event?.since ? f.moment(event.since) : "–",
          who: client ? h("bdi", null, f.host(client.client)) : "–",
          change: change ? [h("bdi", null, [change.reason, change.by].filter(Boolean).join(", ")), ", ", change.expires ? t("ends_in", { time: f.until(change.expires) }) : t("no_end")] : item.limit ? originText(item.limit.origin) : "–",
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
      polls.forEach((each) => each.stop());
      charts.stop();
    },
    view() {
      const snapshot = state.snapshot;
      const live = liveChanges(data.history);
      if (!snapshot) return [head(t("overview"), { api: "/v1/status" }), h("p", { class: "quiet" }, t("loading"))];
      const list = alarms(snapshot, data.listeners);
      announce(list);
      return [
        head(t("overview"), { api: "/v1/status" }),
        healthLine(snapshot, data.listeners, live, data.quotas),
        figures(snapshot, data.listeners),
        h("section", { "aria-labelledby": "alarms-title" }, h("h2", { id: "alarms-title", class: list.length ? "" : "unseen" }, t("alarms")),
          list.length ? h("ul", { class: "alarms" }, list.slice(0, 8).map(alarmLine), list.length > 8 && h("li", { key: "more", class: "quiet" }, t("and_more", { n: list.length - 8 }))) : h("p", { class: "calm" }, t("all_calm"))),
        problem(data.error),
        h("section", { "aria-labelledby": "worst-title" }, h("div", { class: "bar-head" }, h("h2", { id: "worst-title" }, t("worst_now")), h("a", { href: "/topics" }, t("all_topics", { n: f.count(snapshot.topics_known) })), h("a", { class: "button small", href: csvOf("/v1/topics?sort=refused"), download: "" }, "CSV")), worstNow(snapshot, live)),
        h("section", { "aria-labelledby": "chart-title" }, h("div", { class: "bar-head" }, h("h2", { id: "chart-title" }, t("traffic")), choice(t("range"), [["15m", t("range_15m")], ["24h", t("range_24h")]], data.range, (name) => {
          data.range = name;
          data.series = null;
          draw();
          redraw();
        })), chart(data.series, { label: t("traffic"), limit: false, key: data.range })),
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
