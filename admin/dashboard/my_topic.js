// A page that can be sent to a team: their topic, whether it is limited now, why, what their library shows, and what to do.

import { ADVICE, libraryOf, situationsOf } from "./advice.js";
import { get, poll } from "./api.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { badge, choice, csvOf, head, problem, table } from "./parts.js";
import { limitPath } from "./router.js";
import { points, refresh } from "./screen_data.js";
import { redraw, state, topicKey } from "./store.js";
import { language, t } from "./text.js";
import { levelCard } from "./topic.js";

export function myTopic({ protocol, topic }) {
  const item = { protocol, topic, operation: "produce" };
  const path = limitPath(item);
  const data = { body: null, now: null, quotas: null, clients: [], libraries: [], series: null, range: "24h", error: null, library: "" };
  const lists = refresh(data, async (signal) => {
    data.body = await get(`${path}?explain=1`, { signal });
    const q = encodeURIComponent(topic);
    data.now = (await get(`/v1/topics?protocol=${protocol}&q=${q}&limit=50`, { signal })).items.find((each) => each.topic === topic && each.operation === "produce") || null;
    data.clients = (await get(`/v1/clients?protocol=${protocol}&q=${q}&limit=50`, { signal })).items.filter((each) => each.topic === topic);
    data.quotas = (await get("/v1/quotas/status", { signal })).published;
  }, 3);
  const libraries = poll(async (signal) => {
    const refused = (data.now?.clients || []).map((each) => f.host(each.client)).slice(0, 4);
    const found = new Set();
    for (const address of refused.length ? refused : [""]) {
      if (!address) continue;
      const page = await get(`/v1/connections?protocol=${protocol}&q=${encodeURIComponent(address)}&limit=20`, { signal });
      for (const each of page.items) {
        const known = libraryOf(each);
        if (known) found.add(known.name);
      }
    }
    data.libraries = [...found];
    redraw();
  }, 10);
  const charts = points(item, data, 1);

  const level = () => {
    const levels = (data.body?.levels || []).filter((each) => each.operation !== "consume");
    return levels.find((each) => each.usage?.wait_ms > 0) || levels.find((each) => each.per === "topic") || levels[0];
  };

  function verdict(now) {
    const since = state.over.get(topicKey(item))?.since;
    if (!now) return h("p", { class: "verdict" }, badge(t("verdict_unseen")), " ", t("verdict_unseen_text"));
    if (now.refused_per_second > 0) return h("p", { class: "verdict" }, badge(t("verdict_refused"), "bad"), " ", t("verdict_refused_text", { share: f.percent(now.refused_per_second / Math.max(now.received_per_second, 1e-9)), since: since ? t("since_at", { at: f.moment(since) }) : "" }));
    if (now.waiting > 0) return h("p", { class: "verdict" }, badge(t("verdict_held"), "warn"), " ", t("verdict_held_text", { n: f.count(now.waiting) }));
    return h("p", { class: "verdict" }, badge(t("verdict_within"), "good"), " ", t("verdict_within_text"));
  }

  function refusedLately() {
    const refused = (data.series?.points?.refused || []).reduce((sum, value) => sum + (value || 0) * data.series.step, 0);
    return data.series?.known ? t(data.range === "24h" ? "refused_24h" : "refused_15m", { n: f.count(Math.round(refused)) }) : null;
  }

  function clientsTable() {
    const known = new Map(data.clients.map((each) => [each.client, each]));
    return table(t("refused_by_client"), [{ name: "client", title: t("client") }, { name: "user", title: t("user") }, { name: "name", title: t("client_name") }, { name: "now", title: t("refused_now"), number: true }, { name: "all", title: t("refused_all"), number: true }], (data.now?.clients || []).map((each) => ({ key: each.client, cells: {
      client: h("bdi", null, each.client), user: h("bdi", null, known.get(each.client)?.user || "–"), name: h("bdi", null, known.get(each.client)?.names?.join(", ") || "–"), now: f.rate(each.refused_per_second), all: f.count(each.refused),
    } })), { empty: t("nobody_refused") });
  }

  function library() {
    const of = ADVICE.filter((each) => each.protocol === protocol);
    const names = data.library ? [data.library] : data.libraries.length ? data.libraries : [];
    const bites = situationsOf(level(), protocol);
    return h("section", { key: "library", "aria-labelledby": "library-title" }, h("h2", { id: "library-title" }, t("what_you_see")),
      h("div", { class: "tools" }, h("label", { for: "library" }, t("your_library")), h("select", { id: "library", onchange: (event) => {
        data.library = event.target.value;
        redraw();
      } }, h("option", { value: "", selected: !data.library }, data.libraries.length ? t("as_connected", { names: data.libraries.join(", ") }) : t("choose")), of.map((each) => h("option", { key: each.name, value: each.name, selected: data.library === each.name }, each.name)))),
      names.map((name) => {
        const one = of.find((each) => each.name === name);
        return one && h("div", { class: "card", key: name }, h("h3", null, one.name), h("dl", { class: "pairs" }, bites.filter((bite) => one.shows[bite]).map((bite) => h("div", { key: bite }, h("dt", null, t(`bite_${bite}`)), h("dd", { lang: "en" }, one.shows[bite]))), !bites.includes("spooled") && h("div", { key: "do" }, h("dt", null, t("to_do")), h("dd", { lang: "en" }, one.to_do))), language() !== "en" && h("p", { class: "quiet" }, t("advice_in_english")));
      }));
  }

  const steps = () => ["step_loop", "step_confirms", "step_spread", "step_ask", "step_action"].filter((each) => protocol === "amqp" || each !== "step_confirms").map((each) => h("li", { key: each }, t(each, { limit: f.limitText(level()?.limit) })));

  return {
    title: () => f.topicName(item),
    leave: () => [lists, libraries, charts].forEach((each) => each.stop()),
    view() {
      const now = data.now;
      const one = level();
      const figure = (key, value, bad) => h("div", { class: bad ? "figure bad" : "figure", key }, h("dt", null, t(key)), h("dd", null, value));
      return [
        head([h("bdi", null, f.topicName(item)), " ", badge(protocol === "amqp" ? "RabbitMQ" : "RocketMQ")], { api: path, csv: csvOf(`/v1/limits?protocol=${protocol}&q=${encodeURIComponent(topic)}`) }),
        h("p", { class: "crumbs" }, h("code", { class: "raw" }, topic), " · ", h("a", { href: `/topics/${protocol}/${encodeURIComponent(topic)}` }, t("all_details"))),
        problem(data.error),
        data.body && verdict(now),
        h("dl", { class: "figures" }, figure("limit", f.limitText(one?.limit)), figure("received", f.rate(now?.received_per_second)), figure("passed", f.rate(now?.forwarded_per_second)), figure("refused", f.rate(now?.refused_per_second), now?.refused_per_second > 0), figure("wait", f.milliseconds(one?.usage?.wait_ms))),
        h("section", { key: "chart", "aria-labelledby": "chart-title" }, h("div", { class: "bar-head" }, h("h2", { id: "chart-title" }, t("traffic")), refusedLately() && h("span", { class: "quiet" }, refusedLately()), choice(t("range"), [["15m", t("range_15m")], ["24h", t("range_24h")]], data.range, charts.choose)), data.series && !data.series.known ? h("p", { class: "quiet" }, t("no_series")) : chart(data.series, { label: f.topicName(item), key: data.range })),
        h("section", { key: "why", "aria-labelledby": "why-title" }, h("h2", { id: "why-title" }, t("why_this_limit")), (data.body?.levels || []).filter((each) => each.operation !== "consume").map((each) => levelCard(each, protocol, data.quotas)), data.body && !data.body.levels.length && h("p", { class: "quiet" }, t("no_limit"))),
        h("section", { key: "clients", "aria-labelledby": "by-client" }, h("h2", { id: "by-client" }, t("refused_by_client")), clientsTable()),
        library(),
        h("section", { key: "do", "aria-labelledby": "do-title" }, h("h2", { id: "do-title" }, t("what_to_do")), h("p", null, t("nothing_broken")), h("ol", null, steps()), h("p", null, t("whom_to_ask", { gateway: state.session.gateway }))),
      ];
    },
  };
}
