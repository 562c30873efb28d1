// One topic: what came and passed against its limit, which limit that is and why, who sends, and the change of it.

import { culpritActions } from "./act.js";
import { get, poll } from "./api.js";
import { traffic } from "./chart.js";
import { h } from "./dom.js";
import { editor, topicLevel } from "./edit.js";
import * as f from "./format.js";
import { accountText, address, badge, culprit, figure, figures, given, head, operationBadge, originText, problem, protocolBadge, quiet, section, stateWord, table, topicAnchor, waitText } from "./parts.js";
import { amend, isSum, levelsPath, limitPath, otherThanProduce, topicPath } from "./router.js";
import { points, readTopic, refresh } from "./screen_data.js";
import { liveTopic, may } from "./store.js";
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
    return [t("set_live", { by: level.by || "?", at: f.moment(level.at), rule }) + own, level.reason && `“${level.reason}”`, level.expires ? t("holds_until", { at: f.moment(level.expires), time: f.until(level.expires) }) : t("until_taken_back")].filter(Boolean);
  if (level.origin === "quota-shadow") return [t("set_tried", { rule })];
  if (level.origin.startsWith("quota"))
    return [t("set_quota", { rule, date: quotas?.date || f.moment(quotas?.computed_at) }) + own, quotas?.by && t("published_by", { by: quotas.by, at: f.moment(quotas.at) }), level.origin === "quota+hour" && t("raised_this_hour")].filter(Boolean);
  return [level.origin === "file" ? t("set_file", { rule }) : t("set_default", { rule })];
}

export function actionText(level, protocol) {
  if (level.mode !== "enforce") return t("action_shadow");
  if (level.operation === "consume") return t("action_consume");
  if (otherThanProduce(level) && level.operation !== "connect") return t("action_held"); // whatever the rule's action
  if (level.action === "reject") return protocol === "amqp" ? t("action_reject_amqp") : t("action_reject_rocketmq", { code: level.reply === "system_busy" ? 2 : 215 });
  return t(`action_${level.action}`, { max: level.max_delay });
}

/** What a rule counts for one message, copy or operation, where that is not one. */
export const costText = (cost) => Object.entries(cost).map(([what, number]) => (what === "step" ? t("cost_step", { size: number }) : t("cost_of", { what: what === "copy" ? t("cost_copy") : t(`of_${what}`), n: number }))).join(", ");

export function levelCard(level, protocol, quotas) {
  const usage = level.usage;
  return h(
    "div",
    { class: "card level", key: `${level.operation} ${level.per} ${level.thing}` },
    h("p", { class: "limit-line" }, h("strong", null, f.limitText(level.limit)), " ", given(whose(level)), " ", otherThanProduce(level) && [operationBadge(level), " "], badge(originText(level.origin), level.origin === "override" ? "live" : ""), level.mode !== "enforce" && [" ", badge(t(`mode_${level.mode}`), "warn")]),
    h("ul", { class: "plain" }, setBy(level, quotas).map((text, at) => h("li", { key: at }, given(text)))),
    h("p", null, actionText(level, protocol)),
    Object.keys(level.cost || {}).length > 0 && h("p", null, t("costs", { costs: costText(level.cost) })),
    usage && h("p", { class: "quiet" }, t("usage_line", { passed: f.count(usage.admitted + usage.shadow_refused), refused: f.count(usage.refused), held: f.count(usage.held) }), usage.would_refuse > 0 && ` · ${t("usage_shadow", { n: f.count(usage.would_refuse) })}`, usage.last_refused && level.mode === "enforce" && ` · ${t("last_limited")} ${f.moment(usage.last_refused, true)}`, usage.breaker === "open" && ` · ${t("breaker_open", { time: level.open_for })}`),
  );
}

function why(explained) {
  return h("details", { class: "why" }, h("summary", null, t("why_this")), (explained || []).map((each, at) =>
    h("div", { key: at }, h("h3", null, `${t(`per_${each.per}`)}${otherThanProduce(each) ? ` (${t(`of_${each.operation}`)})` : ""}`),
      h("p", null, each.holds ? t("why_holds", { rule: each.holds.rule, place: each.holds.place, limit: f.levelText(each.holds) }) : t("why_none")),
      each.lost.length > 0 && h("ul", null, each.lost.map((lost, number) => h("li", { key: number }, t("why_lost", { rule: lost.rule, place: lost.place, limit: f.limitText(lost.limit), reason: lost.reason })))),
      each.missed.length > 0 && h("ul", null, each.missed.map((miss, number) => h("li", { key: number }, t("why_missed", { rule: miss.rule, place: miss.place, reason: miss.reason })))),
      each.more > 0 && h("p", { class: "quiet" }, t("and_more", { n: each.more })))));
}

/** Who sends, as a table shows it. */
export const sender = (client, more) => ({ client: address(client), user: given(more?.user), client_name: given(more?.names?.join(", ")) });

/** What comes, passes and is refused of a topic now. */
export const rates = (now) => [
  figure("received", f.rate(now?.received_per_second)), figure("passed", f.rate(now?.forwarded_per_second)), figure("refused", f.rate(now?.refused_per_second), now?.refused_per_second > 0),
];

const FATE = { no_confirms: "silent", one_way: "silent", delay: "told", spool: "told" }; // of what waits when the gateway ends, by why it is not refused

/** What its limit does to a topic now, since when, whose doing it is, and what ends it. `level`: what limits one without a limit of its own. */
export function accountOf(now, ways, level) {
  const { state, since, last_waits_seconds: last, unrefused_because: because } = now.account;
  const ends = { refused: "ends_refused", waiting: last === null ? "ends_never" : "ends_waiting", would_refuse: "ends_would_refuse" }[state];
  return state !== "within" && h("div", { class: `notice account ${state === "refused" ? "bad" : ""}`, role: "status", key: "account" },
    h("p", null, badge(stateWord(now.account), state === "refused" ? "bad" : "warn"), " ", h("strong", null, accountText(now)), since && ` ${t("since_at", { at: f.moment(since, true) })}`, culprit(now.account), ways && state !== "would_refuse" && [" ", ways(now.account.client)]),
    h("p", null, t(ends, { limit: now.limit || !level ? f.limitText(now.limit) : `${f.limitText(level.limit)} (${whose(level)})`, slow: t("slow_it"), last: last && f.duration(last) })),
    FATE[because] && h("p", { class: "quiet" }, t(`fate_${FATE[because]}`), because === "spool" && t("fate_disk")));
}

/** What is said of a topic that this gateway has not seen, which is no quiet one: its name may be wrong. `data`: of readTopic(). */
export const unseenTopic = (data) => data.now === null && data.near && h("div", { class: "notice", role: "status", key: "never" },
  h("p", null, h("strong", null, t("never_seen")), " ", t("never_seen_text")),
  data.near.length > 0 && h("p", null, t("near_names"), " ", data.near.map((each, at) => [at > 0 && ", ", topicAnchor(each)])));

/** The head of a screen of one topic, whose limits are at `path`. */
export const topicHead = (item, path, ...more) => head([given(f.topicName(item)), " ", protocolBadge(item.protocol), more], path, `/v1/limits?protocol=${item.protocol}&q=${encodeURIComponent(item.topic)}`);

export default function topic({ protocol, topic: name }, query) {
  const item = { protocol, topic: name, operation: query.get("operation") || "produce" };
  const path = limitPath(item);
  const read = levelsPath(item);
  const data = { body: null, now: undefined, near: null, clients: new Map(), quotas: null, series: null, range: "15m", error: null };
  const edit = path && may("operator") ? editor(item, path, { open: query.get("edit") === "1", current: () => data, refresh: () => limits.now() }) : null;
  const limits = refresh(data, async (signal) => {
    data.body = isSum(item) ? {} : await get(`${read}${item.operation === "produce" ? "?explain=1" : path ? "" : "&explain=1"}`, { signal });
    await edit?.seen(data.body.override);
  }, 2);
  const others = refresh(data, (signal) => readTopic(item, data, signal), 2);
  const quotas = poll(async (signal) => {
    data.quotas = (await get("/v1/quotas/status", { signal })).published;
  }, 30);
  const charts = points(item, data, 1);
  const act = culpritActions(item, () => ({ now: fresh(), refresh: () => limits.now() }));
  let wanted = query.get("act"); // a client to act on, as an alarm has named it

  const fresh = () => {
    const live = liveTopic(item);
    return live ? { ...data.now, ...live, used: data.now?.used, wait_ms: data.now?.wait_ms } : data.now;
  };

  function worstClients(now) {
    const rows = (now?.clients || []).map((each) => {
      const more = data.clients.get(each.client);
      return { key: each.client, cells: {
        ...sender(each.client, more), library: given(more?.libraries?.map((one) => `${one.product || one.language || ""} ${one.version || ""}`.trim()).join(", ")),
        refused: f.rate(each.refused_per_second), refused_of: `${f.count(each.refused)} / ${f.count(each.forwarded + each.refused)}`, waiting: f.count(each.waiting), act: act.ways(each.client),
      } };
    });
    return table(t("worst_clients"), "client user client_name library refused:number refused_of:number waiting:number act:spoken", rows, { empty: t("nobody_refused") });
  }

  /** A limit that is only tried is drawn, too: the series has none. */
  function drawTried({ points }, now) {
    if (points?.received && now?.limit?.mode === "shadow") points.limit = points.received.map((_, at) => points.limit?.[at] ?? now.limit.messages_per_second);
  }

  const limiting = () => topicLevel(data.body?.levels, item) || data.body?.levels?.find((each) => each.operation === item.operation && each.origin !== "quota-shadow");

  function facts(now) {
    const level = limiting();
    return figures(rates(now), figure("waiting", f.count(now?.waiting)), now?.spooled > 0 && figure("spooled", f.count(now.spooled)), figure("limit", f.levelText(level)), figure("wait", now?.account && waitText(now)), now?.wait_p99_ms && figure("p99_wait", f.milliseconds(now.wait_p99_ms)),
      now?.limit?.mode === "shadow" ? figure("would_refuse", f.rate(now.account.would_refuse_per_second)) : figure("last_limited", f.moment(level?.usage?.last_refused, true)));
  }

  return {
    title: () => f.topicName(item),
    leave: () => {
      for (const each of [limits, others, quotas, charts]) each.stop();
      edit?.leave();
    },
    view() {
      const now = fresh();
      drawTried(data.series || {}, now);
      if (wanted && now && may("operator")) {
        const client = wanted;
        wanted = null;
        amend({ act: "" });
        queueMicrotask(() => act.limit(client));
      }
      return [
        topicHead(item, isSum(item) ? "/v1/topics?q=__other__" : read, otherThanProduce(item) && operationBadge(item)),
        h("p", { class: "crumbs" }, h("a", { href: "/topics" }, `‹ ${t("topics")}`), " · ", h("code", { class: "raw" }, name), item.operation === "produce" && !isSum(item) && [" · ", h("a", { href: `/t/${topicPath(item)}` }, t("page_for_team"))]),
        problem(data.error),
        unseenTopic(data),
        now && accountOf(now, act.ways, limiting()),
        act.view(),
        facts(now),
        quiet(t("rates_are"), "rates"),
        edit?.view(),
        traffic(data, charts, f.topicName(item)),
        section("limits", t("limits_in_force"), null, data.body && (data.body.levels?.length ? data.body.levels.map((level) => levelCard(level, protocol, data.quotas)) : quiet(t(isSum(item) ? "sum_means" : "no_limit"))),
          now?.account?.state !== "would_refuse" && (data.body?.remarks || []).map((text, at) => h("p", { key: at, class: "notice" }, text)), data.body?.explanation && why(data.body.explanation)),
        section("clients", t("worst_clients"), null, worstClients(now)),
      ];
    },
  };
}
