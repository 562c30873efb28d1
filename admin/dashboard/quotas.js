// Quotas: the snapshot in force and the one tried, the evidence of each topic; rules' candidates.

import { ask, get, Problem } from "./api.js";
import { confirmation } from "./confirm.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { button, buttons, given, head, pairs, problem, quiet, say, search, section, spark, table, topicAnchor } from "./parts.js";
import { topicPath } from "./router.js";
import { refresh } from "./screen_data.js";
import { may, redraw } from "./store.js";
import { t } from "./text.js";

const MOST = 200; // topics shown at once

const pair = (limit, unit) => (limit ? `${f.number(limit.rate)}${unit}/s` : "–");

function evidence(found, path = "") {
  return Object.entries(found || {}).flatMap(([name, value]) => {
    const full = path ? `${path}.${name}` : name;
    if (value === null || value === "") return [];
    if (Array.isArray(value) && value.length > 1 && value.every((each) => typeof each === "number")) return [[full, [spark(value, "passed"), ` ${f.number(Math.min(...value))} … ${f.number(Math.max(...value))}`]]];
    if (typeof value === "object" && !Array.isArray(value)) return evidence(value, full);
    return [[full, given(typeof value === "number" ? f.number(value) : typeof value === "object" ? JSON.stringify(value) : String(value))]];
  });
}

export default function quotas({ protocol, topic }, query) {
  const data = { status: null, snapshot: null, shadow: null, rules: [], error: null, q: query.get("q") || "" };
  const question = confirmation();
  let sha = null;
  const lists = refresh(data, async (signal) => {
    data.status = await get("/v1/quotas/status", { signal });
    const now = `${data.status.published?.sha256} ${data.status.shadow?.sha256}`;
    if (sha !== now) {
      data.snapshot = await get("/v1/quotas", { signal });
      data.shadow = data.status.shadow ? await get("/v1/quotas/shadow", { signal }) : null;
      sha = now;
    }
    data.rules = (await get("/v1/rules?limit=500", { signal })).items.filter((rule) => rule.candidate);
  }, 5);

  function snapshotCard(title, one, realised, ways) {
    return h("div", { class: "card", key: title }, h("h2", null, title), one
      ? [
          h("p", null, h("strong", null, t("quotas_n", { n: f.count(one.quotas) })), ` · ${t("computed_at", { at: one.date || f.moment(one.computed_at) })} · ${t("published_by", { by: one.by || "?", at: f.moment(one.at) })}`, one.reason && [" · ", given(`“${one.reason}”`)]),
          one.put_back && h("p", { class: "notice" }, one.put_back),
          realised && h("p", null, t("realised_line", { refused: f.count(realised.refused), offered: f.count(realised.offered), share: `${(realised.ratio * 100).toFixed(3)} %`, since: f.moment(realised.since) }), one.target_refused_ppm && ` · ${t("target_line", { share: `${one.target_refused_ppm / 10000} %` })}`),
          realised?.topics?.length > 0 && table(`${title}: ${t("refused_most")}`, "topic:wide refused:number received:number", realised.topics.slice(0, 8).map((each) => ({ key: `${each.protocol} ${each.topic}`, cells: { topic: topicAnchor(each), refused: f.count(each.refused), received: f.count(each.offered) } }))),
          ways,
        ]
      : quiet(t("none_published")));
  }

  /** Asks before `run(reason, etag)` changes what is at `path` now: what comes between the question and the answer is a conflict. */
  async function askFirst(path, what) {
    try {
      const { etag } = await ask("GET", path);
      data.fault = null;
      question.ask({ ...what, run: (reason) => what.run(reason, etag) });
    } catch (error) {
      data.fault = error;
      redraw();
    }
  }

  const way = (path, text, what, danger) => button(text, () => askFirst(path, { title: text, action: text, danger, ...what }), { class: danger ? "danger" : "main" });

  function waysOf(kind) {
    if (!may("operator")) return null;
    if (kind === "published")
      return buttons(way("/v1/quotas", t("quotas_back"), { text: t("quotas_back_text"), run: async (reason, etag) => {
        await ask("POST", "/v1/quotas:rollback", { etag, body: { reason: reason || null } });
        say(t("rolled_back"));
        lists.now();
      } }, true));
    const [wanted, of] = [data.shadow, sha]; // as they are shown where it is asked; another trial may come meanwhile
    return buttons(
      way("/v1/quotas", t("quotas_apply"), { text: t("quotas_apply_text"), run: async (reason, etag) => {
        const { shadow } = await get("/v1/quotas/status");
        if (shadow?.sha256 !== of?.split(" ")[1]) throw new Problem(412, { detail: t("trial_changed") });
        await ask("PUT", "/v1/quotas", { etag, body: wanted, reason });
        lists.now();
      } }),
      way("/v1/quotas/shadow", t("trial_end"), { run: async (reason, etag) => {
        await ask("DELETE", "/v1/quotas/shadow", { etag, reason });
        lists.now();
      } }, true));
  }

  function topicsTable() {
    const found = (data.snapshot?.quotas || []).filter((each) => (topic ? each.topic === topic && each.protocol === protocol : `${each.topic} ${f.topicName(each)}`.toLowerCase().includes(data.q.toLowerCase())));
    const tried = new Map((data.shadow?.quotas || []).map((each) => [`${each.protocol} ${each.topic}`, each]));
    return [
      !topic && h("div", { class: "tools", key: "tools" }, search(data, t("search_hint"))),
      table(t("quotas_per_topic"), "topic:wide messages=messages_limit:number bytes=bytes_limit:number tried:number status", found.slice(0, MOST).map((each) => {
        const other = tried.get(`${each.protocol} ${each.topic}`);
        return { key: `${each.protocol} ${each.topic}`, cells: { topic: h("a", { class: "topic", href: `/quotas/${topicPath(each)}` }, given(f.topicName(each))), messages: pair(each.messages, ""), bytes: each.bytes ? `${f.bytes(each.bytes.rate)}/s` : "–", tried: other ? pair(other.messages, "") : "–", status: given(each.evidence?.status) } };
      }), { empty: t("none_found") }),
      found.length > MOST && quiet(t("and_more", { n: f.count(found.length - MOST) }), "more"),
      topic && found[0] && h("div", { class: "card", key: "evidence" }, h("h2", null, t("evidence")), found[0].evidence?.reason && h("p", null, given(String(found[0].evidence.reason))), pairs(evidence(found[0].evidence), (name) => h("code", null, name)), h("p", null, topicAnchor(found[0]), ` – ${t("to_topic")}`)),
    ];
  }

  function candidates() {
    return table(t("candidates"), `rule limit:number candidate:number would_refuse:number since:number${may("operator") ? " promote:spoken" : ""}`, data.rules.map((rule) => ({ key: rule.name, cells: {
      rule: given(rule.name), limit: f.limitText(rule.limit), candidate: f.limitText(rule.candidate),
      would_refuse: rule.candidate_usage ? `${f.count(rule.candidate_usage.would_refuse)} / ${f.count(rule.candidate_usage.would_refuse + rule.candidate_usage.would_admit)}` : "–", since: f.moment(rule.candidate_usage?.since),
      promote: way(`/v1/rules/${encodeURIComponent(rule.name)}`, t("promote"), { text: t("promote_text", { rule: rule.name, limit: f.limitText(rule.candidate) }), run: async (reason, etag) => {
        await ask("POST", `/v1/rules/${encodeURIComponent(rule.name)}:promote`, { etag, body: { reason: reason || null } });
        lists.now();
      } }),
    } })), { empty: t("no_candidates") });
  }

  return {
    title: () => t("quotas"),
    leave: lists.stop,
    view: () => [
      head(topic ? [given(f.topicName({ protocol, topic })), ` – ${t("quotas")}`] : t("quotas"), topic ? "/v1/quotas" : "/v1/quotas/status", "/v1/quotas"),
      topic && h("p", { class: "crumbs" }, h("a", { href: "/quotas" }, `‹ ${t("quotas")}`)),
      problem(data.fault || data.error),
      !data.status && !data.error && quiet(t("loading"), "wait"),
      data.status && !topic && h("div", { class: "cards", key: "cards" }, snapshotCard(t("in_force_now"), data.status.published, data.status.realised, waysOf("published")), data.status.shadow && snapshotCard(t("tried"), data.status.shadow, data.status.would_refuse, waysOf("shadow"))),
      data.status?.published && section("topics", t("quotas_per_topic"), null, topicsTable()),
      !topic && data.status && section("candidates", t("candidates"), null, candidates()),
      question.view(),
    ],
  };
}
