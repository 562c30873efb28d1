// A page that can be sent to a team: their topic, whether it is limited now, why, what their library shows, and what to do.

import { adviceOf, libraryOf, situationsOf } from "./advice.js";
import { get, poll } from "./api.js";
import { traffic } from "./chart.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { badge, figure, figures, pairs, problem, quiet, section, select, table } from "./parts.js";
import { limitPath, topicPath } from "./router.js";
import { points, readTopic, refresh } from "./screen_data.js";
import { redraw, state } from "./store.js";
import { language, t } from "./text.js";
import { accountOf, levelCard, rates, sender, topicHead, unseenTopic } from "./topic.js";

export default function myTopic({ protocol, topic }) {
  const item = { protocol, topic, operation: "produce" };
  const path = limitPath(item);
  const data = { body: null, now: undefined, near: null, quotas: null, clients: new Map(), libraries: [], series: null, range: "24h", error: null, library: "", advice: [], language: null };
  const lists = refresh(data, async (signal) => {
    data.body = await get(`${path}?explain=1`, { signal });
    await readTopic(item, data, signal);
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
        if (known) found.add(known);
      }
    }
    data.libraries = [...found];
    redraw();
  }, 10);
  const charts = points(item, data, 1);

  /** The table of libraries, in the language chosen. */
  function read() {
    data.language = language();
    adviceOf(protocol).then((found) => {
      data.advice = found;
      redraw();
    }, (error) => {
      data.error = error;
      data.language = null; // the next drawing tries again
    });
  }

  const published = () => (data.body?.levels || []).filter((each) => each.operation === "produce");

  const level = () => {
    const levels = published().filter((each) => each.origin !== "quota-shadow");
    return levels.find((each) => each.usage?.wait_ms > 0) || levels.find((each) => each.per === "topic") || levels[0];
  };

  function verdict(now) {
    if (!now) return unseenTopic(data);
    return accountOf(now, null, level()) || h("p", { class: "verdict" }, badge(t("verdict_within"), "good"), " ", t("verdict_within_text"));
  }

  function refusedLately() {
    const refused = (data.series?.points?.refused || []).reduce((sum, value) => sum + (value || 0) * data.series.step, 0);
    return data.series?.known ? t(data.range === "24h" ? "refused_24h" : "refused_15m", { n: f.count(Math.round(refused)) }) : null;
  }

  function clientsTable() {
    return table(t("refused_by_client"), "client user client_name refused_now:number refused_all:number", (data.now?.clients || []).map((each) => ({ key: each.client, cells: {
      ...sender(each.client, data.clients.get(each.client)), refused_now: f.rate(each.refused_per_second), refused_all: f.count(each.refused),
    } })), { empty: t("nobody_refused") });
  }

  function library() {
    if (data.language !== language()) read();
    const of = data.advice;
    const bites = situationsOf(level(), protocol);
    const options = [["", data.libraries.length ? t("as_connected", { names: data.libraries.join(", ") }) : t("choose")], ...of.map((each) => [each.name, each.name])];
    const chosen = select(data, "library", options, { onchange: (event) => {
      data.library = event.target.value;
      redraw();
    } });
    return section("library", t("what_you_see"), null, h("div", { class: "tools" }, h("label", { for: "library" }, t("your_library")), chosen({ id: "library" })),
      of.filter((each) => (data.library ? each.name === data.library : data.libraries.includes(each.name))).map((one) =>
        h("div", { class: "card", key: one.name }, h("h3", null, one.name), pairs([...bites.map((bite) => [`bite_${bite}`, one.shows[bite]]), ...(bites.includes("spooled") ? [] : [["to_do", one.to_do]])]))));
  }

  const steps = () => ["step_loop", "step_confirms", "step_spread", "step_ask", "step_action"].filter((each) => protocol === "amqp" || each !== "step_confirms").map((each) => h("li", { key: each }, t(each, { limit: f.limitText(level()?.limit) })));

  return {
    title: () => f.topicName(item),
    leave: () => [lists, libraries, charts].forEach((each) => each.stop()),
    view() {
      const now = data.now;
      const one = level();
      return [
        topicHead(item, path),
        h("p", { class: "crumbs" }, h("code", { class: "raw" }, topic), " · ", h("a", { href: `/topics/${topicPath(item)}` }, t("all_details"))),
        problem(data.error),
        data.body && verdict(now),
        figures(figure("limit", f.levelText(one)), rates(now), figure("wait", f.milliseconds(one?.usage?.wait_ms))),
        traffic(data, charts, f.topicName(item), { beside: refusedLately() && h("span", { class: "quiet" }, refusedLately()) }),
        section("why", t("why_this_limit"), null, published().map((each) => levelCard(each, protocol, data.quotas)), data.body && !published().length && quiet(t("no_limit"))),
        section("clients", t("refused_by_client"), null, clientsTable()),
        library(),
        section("do", t("what_to_do"), null, now?.account?.state === "refused" && h("p", null, t("nothing_broken")), h("ol", null, steps()), h("p", null, t("whom_to_ask", { gateway: state.session.gateway }))),
      ];
    },
  };
}
