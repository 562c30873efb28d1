// The first screen: what is wrong, who, since when, and the way out.

import { traffic } from "./chart.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { accountText, address, badge, bar, csvButton, culprit, figure, figures, given, head, originText, quiet, refusedShare, section, spark, table, topicAnchor, waitText } from "./parts.js";
import { limitPath, ofMessages, topicLink, topicOf } from "./router.js";
import { points } from "./screen_data.js";
import { may, state, topicIn, topicKey } from "./store.js";
import { t } from "./text.js";

const SHOWN = 8; // alarms
const BUSY_MS = 30_000; // a broker counts as busy for so long after it last said so; the numbers are since the start

/** That a limit which is over was changed live already, by whom and until when: so nobody does it again. */
function liveChange(over, item, now, items) {
  const own = now?.limit?.by ? now.limit : items.find((each) => each.target === (item && over.per === "topic" ? limitPath(item)?.slice("/v1/".length) : `rules/${over.rule}`));
  return own && t(own.expires ? "alarm_live" : "alarm_live_on", { limit: f.limitText(own), by: own.by, at: f.moment(own.expires) });
}

/** What needs a person, the worst first: {key, level, at, text, item, link}. */
export function alarms(snapshot) {
  const found = [];
  const { listeners } = snapshot;
  const unreachable = listeners.filter((each) => each.upstream_reachable === false);
  for (const reason of snapshot.not_ready_because || []) found.push({ key: `ready ${reason}`, level: "bad", text: t("not_ready_because", { reason }) });
  for (const each of unreachable) found.push({ key: `broker ${each.name}`, level: "bad", text: t("broker_unreachable", { listener: each.name, upstream: each.upstream, error: each.upstream_error || "" }), link: "/brokers" });
  for (const each of listeners) {
    if (each.broker_blocked_connections) found.push({ key: `blocked ${each.name}`, level: "bad", at: each.broker_blocked_since, text: t("broker_blocks", { listener: each.name, upstream: each.upstream, since: f.ago(each.broker_blocked_since), reason: each.broker_blocked_reason ? `: “${each.broker_blocked_reason}”` : "", n: f.count(each.broker_blocked_connections), of: f.count(each.connections_active) }), link: "/connections?sort=blocked" });
    const busy = Object.entries(each.broker_busy || {}).filter(([, count]) => count);
    if (Date.now() - (state.busyAt.get(each.name) || 0) < BUSY_MS) found.push({ key: `busy ${each.name}`, level: "warn", text: t("broker_busy", { listener: each.name, what: busy.map(([code, count]) => `${code}: ${f.count(count)}`).join(", ") }), link: "/brokers" });
  }
  for (const over of snapshot.over) {
    const item = over.topic ? { protocol: over.protocol, topic: over.topic, operation: over.operation } : null;
    const now = item && over.per === "topic" && topicIn(snapshot, item); // a client's limit has its own rate, and its own client
    const rate = now ? now.received_per_second : over.rate;
    const share = now ? refusedShare(now) : null;
    const does = now && accountText(now);
    const since = new Date(over.bouts_since * 1000).toISOString();
    found.push({
      key: `${over.per} ${over.thing} ${over.operation} ${over.rule}`, level: share > 0.5 ? "bad" : "warn", at: since, item, client: now?.account?.client || over.client, live: liveChange(over, item, now, snapshot.live_changes.items), weight: share === null ? over.rate : now.refused_per_second,
      text: t("alarm_over", { whose: over.per === "topic" ? "" : ` (${t(`per_${over.per}`)} ${over.per === "rule" ? over.rule : over.thing})`, since: f.ago(since), rate: f.number(rate), limit: f.readable(over.limit), does: does ? `; ${does}` : "", who: culprit(does && now.account.client ? now.account : over) }),
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
  const blocked = snapshot.listeners.some((each) => each.broker_blocked_connections);
  const { total, without_end: endless } = snapshot.live_changes;
  const quotas = snapshot.quotas;
  return h(
    "p",
    { class: "health" },
    badge(snapshot.draining ? t("draining") : snapshot.ready ? t("ready") : t("not_ready"), snapshot.ready && !snapshot.draining ? "good" : "bad"),
    h("a", { href: "/brokers" }, badge(t(!reachable ? "broker_not_reachable" : blocked ? "broker_blocked" : "broker_reachable"), reachable && !blocked ? "good" : "bad")),
    h("a", { href: "/changes" }, total ? t("live_changes", { n: total }) + (endless ? t("without_end", { n: endless }) : "") : t("no_live_changes")),
    h("a", { href: "/quotas" }, quotas ? t("quotas_of", { date: quotas.date || f.moment(quotas.computed_at) }) : t("no_quotas")),
    h("span", null, t("rules_rev", { n: snapshot.revision })),
    snapshot.memory_full && badge(t("memory_full"), "bad"),
    snapshot.fleet && h("span", null, t("fleet", { name: snapshot.fleet.name, n: snapshot.fleet.gateways })),
  );
}

function numbers(snapshot) {
  const rates = snapshot.rates;
  const ring = state.ring;
  const seats = Math.max(0, ...snapshot.listeners.map((each) => each.seats?.most || 0));
  const { memory_limit: limit, memory: held } = snapshot;
  const memory = Math.max(limit?.limit_bytes ? limit.size_bytes / limit.limit_bytes : 0, held?.high_watermark ? held.held_bytes / held.high_watermark : 0);
  return figures(
    figure("received", f.rate(rates.received_per_second), false, spark(ring.map((each) => each[0]), "received")),
    figure("passed", f.rate(rates.forwarded_per_second), false, spark(ring.map((each) => each[1]), "passed")),
    figure("waiting", f.count(snapshot.totals.waiting)),
    figure("refused", f.rate(rates.refused_per_second), rates.refused_per_second > 0, spark(ring.map((each) => each[2]), "refused")),
    snapshot.overhead_ms && figure("added_p99", f.milliseconds(snapshot.overhead_ms.p99)),
    figure("loop_lag", f.milliseconds(snapshot.event_loop?.lag_ms)),
    figure("memory", f.percent(memory)),
    figure("connections", `${f.count(snapshot.connections)}${seats ? ` / ${f.count(seats)}` : ""}`),
  );
}

/** The gateways of a fleet, after their sum, and those that it lacks: silent ones by name, and ones of a version that tells nothing. */
function fleetSum(fleet) {
  const missing = fleet?.missing || [];
  if (!fleet || (fleet.gateways < 2 && !missing.length)) return null;
  const told = fleet.members || [];
  const lacking = Math.max(missing.length, fleet.gateways - told.length);
  const row = (each, key, name) => ({ key, className: each.refused_per_second > 0 ? "bad" : "", cells: {
    gateway: name, received: f.rate(each.received_per_second), passed: f.rate(each.forwarded_per_second), refused: f.rate(each.refused_per_second),
    waiting: f.count(each.waiting), connections: f.count(each.connections),
  } });
  const title = t("fleet_sum", { name: fleet.name });
  return section("fleet", title, null,
    fleet.members ? table(title, "gateway:wide received:number passed:number refused:number waiting:number connections:number", [row(fleet.sum, "sum", t("sum")), ...told.map((each, at) => row(each, `${at} ${each.name}`, given(each.name)))])
      : quiet(t(fleet.reachable ? "loading" : "fleet_away")),
    fleet.members && lacking > 0 && h("p", { class: "notice missing", role: "status", key: "lacking" }, t("fleet_lacking", { n: lacking, who: missing.length ? ` (${missing.join(", ")})` : "" })));
}

export default function overview() {
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
      h("span", { class: "words" }, item && [topicAnchor(item), " "], alarm.text, alarm.live && [" · ", h("strong", { class: "live" }, alarm.live)]),
      h("span", { class: "ways" },
        item && h("a", { class: "button small", href: topicLink(item), "aria-label": `${t("look")}: ${f.topicName(item)}` }, t("look")),
        item && limitPath(item) && may("operator") && h("a", { class: "button small main", href: topicLink(item, { edit: "1" }), "aria-label": `${t("limit_it")}: ${f.topicName(item)}` }, t("limit_it")),
        item && ofMessages(item) && alarm.client && may("operator") && h("a", { class: "button small", href: topicLink(item, { act: alarm.client }), "aria-label": `${t("act_limit")}: ${alarm.client}` }, t("act_limit")),
        alarm.link && h("a", { class: "button small", href: alarm.link }, t("look"))),
    );
  }

  function worstNow(snapshot) {
    const rows = snapshot.topics.filter((item) => item.received_per_second > 0 || item.waiting > 0).slice(0, 10).map((item) => {
      const over = state.over.get(topicKey(item));
      const { limit, account } = item;
      return {
        key: topicKey(item),
        className: item.refused_per_second > 0 ? "bad" : "",
        cells: {
          topic: topicAnchor(item),
          rate: f.rate(item.received_per_second),
          limit: f.limitText(limit),
          used: bar(item.used),
          refused: item.refused_per_second > 0 ? f.rate(item.refused_per_second) : "0",
          waiting: f.count(item.waiting),
          wait: waitText(item),
          since: over ? f.moment(over.since) : "–",
          who: address(account.client),
          last_change: limit?.by ? [given([limit.reason, limit.by].filter(Boolean).join(", ")), ", ", limit.expires ? t("ends_in", { time: f.until(limit.expires) }) : t("no_end")] : limit ? originText(limit.origin) : "–",
        },
      };
    });
    return table(t("worst_now"), "topic:wide rate:number limit:number used refused:number waiting:number wait:number since:number who last_change", rows, { empty: t("no_traffic"), className: "worst" });
  }

  return {
    title: () => t("overview"),
    leave: charts.stop,
    view() {
      const snapshot = state.snapshot;
      if (!snapshot) return [head(t("overview"), "/v1/status"), quiet(t("loading"))];
      const list = alarms(snapshot);
      announce(list);
      const live = snapshot.live_changes.items;
      return [
        head(t("overview"), "/v1/status"),
        healthLine(snapshot),
        numbers(snapshot),
        fleetSum(snapshot.fleet),
        h("section", { "aria-labelledby": "alarms-title" }, h("h2", { id: "alarms-title", class: list.length ? "" : "unseen" }, t("alarms")),
          list.length ? h("ul", { class: "alarms" }, list.slice(0, SHOWN).map(alarmLine), list.length > SHOWN && h("li", { key: "more", class: "quiet" }, h("a", { href: "/topics" }, t("and_more", { n: f.count(list.length - SHOWN + Math.max(0, snapshot.over_total - snapshot.over.length || 0)) })))) : h("p", { class: "calm" }, t("all_calm"))),
        section("worst", t("worst_now"), [h("a", { href: "/topics" }, t("all_topics", { n: f.count(snapshot.topics_known) })), csvButton("/v1/topics?sort=refused")], worstNow(snapshot)),
        traffic(data, charts, t("traffic"), { limit: false }),
        live.length > 0 && section("live", t("live_now"), null, table(t("live_now"), "what:wide limit:number by reason ends:number", live.map((each) => {
          const item = topicOf(each.target);
          return { key: each.target, cells: {
            what: item ? topicAnchor(item) : given(each.target), limit: each.messages || each.bytes ? f.limitText(each) : "–", by: given(each.by), reason: given(each.reason),
            ends: each.expires ? t("ends_in", { time: f.until(each.expires) }) : t("no_end"),
          } };
        }))),
      ];
    },
  };
}
