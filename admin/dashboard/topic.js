// One topic: what came and passed against its limit, which limit that is and why, who sends, and the change of it.

import { get, poll } from "./api.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import { editor } from "./edit.js";
import * as f from "./format.js";
import { badge, bar, choice, csvOf, head, originText, problem, table } from "./parts.js";
import { limitPath } from "./router.js";
import { points, refresh } from "./screen_data.js";
import { may, redraw, state } from "./store.js";
import { t } from "./text.js";

/** Whose limit a level is: this topic's, each client's, … */
export function whose(level) {
  const thing = level.thing && level.per !== "topic" ? ` ${level.thing}` : "";
  return `${t(`per_${level.per}`)}${thing}`;
}

/** Where a limit comes from, who is answerable for it, and until when it holds. */
export function setBy(level, quotas) {
  const rule = t("rule_named", { rule: level.rule, place: level.place ? ` (${level.place})` : "" });
  const own = level.rule_limit ? t("rule_says", { limit: f.limitText(level.rule_limit) }) : "";
  if (level.origin === "override" || level.by)
    return [t("set_live", { by: level.by || "?", at: f.moment(level.at), rule }) + own, level.reason && `“${level.reason}”`, level.expires ? t("holds_until", { at: f.moment(level.expires), time: f.until(level.expires) }) : t("holds_on")].filter(Boolean);
  if (level.origin.startsWith("quota"))
    return [t("set_quota", { rule, date: quotas?.date || f.moment(quotas?.computed_at) }) + own, quotas?.by && t("published_by", { by: quotas.by, at: f.moment(quotas.at) }), level.origin === "quota+hour" && t("raised_this_hour")].filter(Boolean);
  return [level.origin === "file" ? t("set_file", { rule }) : t("set_default", { rule })];
}

export function actionText(level, protocol) {
  if (level.mode !== "enforce") return t("action_shadow");
  if (level.operation === "consume") return t("action_consume");
  if (level.action === "reject") return protocol === "amqp" ? t("action_reject_amqp") : t("action_reject_rocketmq", { code: level.reply === "system_busy" ? 2 : 215 });
  return t(`action_${level.action}`, { max: level.max_delay });
}

export function levelCard(level, protocol, quotas) {
  const usage = level.usage;
  return h(
    "div",
    { class: "card level", key: `${level.operation} ${level.per} ${level.thing}` },
    h("p", { class: "limit-line" }, h("strong", null, f.limitText(level.limit)), " ", h("bdi", null, whose(level)), " ", badge(originText(level.origin), level.origin === "override" ? "live" : ""), level.mode !== "enforce" && [" ", badge(t(`mode_${level.mode}`), "warn")]),
    h("ul", { class: "plain" }, setBy(level, quotas).map((text, at) => h("li", { key: at }, h("bdi", null, text)))),
    h("p", null, actionText(level, protocol)),
    usage && h("p", { class: "quiet" }, t("usage_line", { passed: f.count(usage.admitted), refused: f.count(usage.refused), held: f.count(usage.held) }), usage.last_refused && ` · ${t("last_limited")} ${f.moment(usage.last_refused, true)}`, usage.breaker === "open" && ` · ${t("breaker_open", { time: level.open_for })}`),
  );
}

function why(explained) {
  return h("details", { class: "why" }, h("summary", null, t("why_this")), (explained || []).map((each, at) =>
    h("div", { key: at }, h("h3", null, `${t(`per_${each.per}`)}${each.operation === "consume" ? ` (${t("consume")})` : ""}`),
      h("p", null, each.holds ? t("why_holds", { rule: each.holds.rule, place: each.holds.place, limit: f.limitText(each.holds.limit) }) : t("why_none")),
      each.lost.length > 0 && h("ul", null, each.lost.map((lost, number) => h("li", { key: number }, t("why_lost", { rule: lost.rule, place: lost.place, limit: f.limitText(lost.limit), reason: lost.reason })))),
      each.missed.length > 0 && h("ul", null, each.missed.map((miss, number) => h("li", { key: number }, t("why_missed", { rule: miss.rule, place: miss.place, reason: miss.reason })))),
      each.more > 0 && h("p", { class: "quiet" }, t("and_more", { n: each.more })))));
}

export function topic({ protocol, topic: name }, query) {
  const item = { protocol, topic: name, operation: query.get("operation") || "produce" };
  const path = limitPath(item);
  const data = { body: null, etag: null, now: null, clients: [], quotas: null, series: null, range: "15m", error: null };
  const edit = may("operator") ? editor(item, path, { open: query.get("edit") === "1", current: () => data, refresh: () => limits.now() }) : null;
  const limits = refresh(data, async (signal) => {
    data.body = await get(`${path}${item.operation === "produce" ? "?explain=1" : ""}`, { signal });
  }, 2);
  const others = poll(async (signal) => {
    const q = encodeURIComponent(name);
    const found = await get(`/v1/topics?protocol=${protocol}&q=${q}&limit=50`, { signal });
    data.now = found.items.find((each) => each.topic === name && each.operation === item.operation) || null;
    const clients = await get(`/v1/clients?protocol=${protocol}&q=${q}&limit=20`, { signal });
    data.clients = clients.items.filter((each) => each.topic === name);
    redraw();
  }, 2);
  const quotas = poll(async (signal) => {
    data.quotas = (await get("/v1/quotas/status", { signal })).published;
  }, 30);
  const charts = points(item, data, 1);

  const fresh = () => {
    const live = state.snapshot?.topics.find((each) => each.topic === name && each.protocol === protocol && each.operation === item.operation);
    return live ? { ...data.now, ...live, used: data.now?.used, wait_ms: data.now?.wait_ms } : data.now;
  };

  function worstClients(now) {
    const known = new Map(data.clients.map((each) => [each.client, each]));
    const rows = (now?.clients || []).map((each) => {
      const more = known.get(each.client);
      return { key: each.client, cells: {
        client: h("bdi", null, each.client), user: h("bdi", null, more?.user || "–"), name: h("bdi", null, more?.names?.join(", ") || "–"), library: h("bdi", null, more?.libraries?.map((one) => `${one.product || one.language || ""} ${one.version || ""}`.trim()).join(", ") || "–"),
        refused: f.rate(each.refused_per_second), total: `${f.count(each.refused)} / ${f.count(each.forwarded + each.refused)}`,
      } };
    });
    return table(t("worst_clients"), [
      { name: "client", title: t("client") }, { name: "user", title: t("user") }, { name: "name", title: t("client_name") }, { name: "library", title: t("library") },
      { name: "refused", title: t("refused"), number: true }, { name: "total", title: t("refused_of"), number: true },
    ], rows, { empty: t("nobody_refused") });
  }

  function facts(now) {
    const one = (key, value) => h("div", { class: "figure", key }, h("dt", null, t(key)), h("dd", null, value));
    const level = data.body?.levels?.find((each) => each.per === "topic") || data.body?.levels?.[0];
    return h("dl", { class: "figures" }, one("received", f.rate(now?.received_per_second)), one("passed", f.rate(now?.forwarded_per_second)),
      h("div", { class: now?.refused_per_second > 0 ? "figure bad" : "figure", key: "refused" }, h("dt", null, t("refused")), h("dd", null, f.rate(now?.refused_per_second))),
      one("waiting", f.count(now?.waiting)), now?.spooled > 0 && one("spooled", f.count(now.spooled)), one("limit", f.limitText(level?.limit)), one("used", bar(now?.used)), one("last_wait", f.milliseconds(now?.wait_ms)), one("last_limited", f.moment(level?.usage?.last_refused, true)));
  }

  return {
    title: () => f.topicName(item),
    leave: () => {
      for (const each of [limits, others, quotas, charts]) each.stop();
      edit?.leave();
    },
    view() {
      const now = fresh();
      return [
        head([h("bdi", null, f.topicName(item)), " ", badge(protocol === "amqp" ? "RabbitMQ" : "RocketMQ"), item.operation === "consume" && badge(t("consume"))], { api: path, csv: csvOf(`/v1/limits?protocol=${protocol}&q=${encodeURIComponent(name)}`) }),
        h("p", { class: "crumbs" }, h("a", { href: "/topics" }, `‹ ${t("topics")}`), " · ", h("code", { class: "raw" }, name), item.operation === "produce" && [" · ", h("a", { href: `/t/${protocol}/${encodeURIComponent(name)}` }, t("page_for_team"))]),
        problem(data.error),
        facts(now),
        edit?.view(),
        h("section", { "aria-labelledby": "chart-title" }, h("div", { class: "bar-head" }, h("h2", { id: "chart-title" }, t("traffic")), choice(t("range"), [["15m", t("range_15m")], ["24h", t("range_24h")]], data.range, charts.choose)), data.series && !data.series.known ? h("p", { class: "quiet" }, t("no_series")) : chart(data.series, { label: f.topicName(item), key: data.range })),
        h("section", { "aria-labelledby": "limits-title" }, h("h2", { id: "limits-title" }, t("limits_in_force")), data.body && (data.body.levels?.length ? data.body.levels.map((level) => levelCard(level, protocol, data.quotas)) : h("p", { class: "quiet" }, t("no_limit"))),
          (data.body?.remarks || []).map((text, at) => h("p", { key: at, class: "notice" }, text)), data.body?.explanation && why(data.body.explanation)),
        h("section", { "aria-labelledby": "clients-title" }, h("h2", { id: "clients-title" }, t("worst_clients")), worstClients(now)),
      ];
    },
  };
}
