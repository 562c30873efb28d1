// The history: who changed what, when and why, before and after; and the way back to the state as of a revision.

import { ask, get } from "./api.js";
import { confirmation, diff } from "./confirm.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { button, given, head, problem, quiet, say, search, topicAnchor } from "./parts.js";
import { go, topicOf } from "./router.js";
import { refresh } from "./screen_data.js";
import { may, redraw } from "./store.js";
import { t } from "./text.js";

const MOST = 500; // entries; a page of the API

const target = (name) => {
  const item = topicOf(name);
  return item ? topicAnchor(item) : h("code", null, given(name));
};

export default function changes({ revision }, query) {
  const by = { q: query.get("q") || "" };
  const data = { items: null, next: null, current: 0, error: null };
  const question = confirmation();
  const api = () => (revision ? `/v1/history/${encodeURIComponent(revision)}` : `/v1/history${by.q ? `?q=${encodeURIComponent(by.q)}` : ""}`);
  let most = 50;
  const lists = refresh(data, async (signal) => {
    const path = revision ? api() : `${api()}${by.q ? "&" : "?"}limit=${most}`;
    const found = await ask("GET", path, { signal });
    data.items = revision ? [found.body.entry] : found.body.items;
    data.next = found.body.next || null;
    data.current = found.body.revision;
  }, 3);

  async function rollBack(entry) {
    const to = entry.revision - 1;
    const path = `/v1/history/${to}:rollback`;
    let preview = null;
    let etag = null;
    try {
      etag = (await ask("GET", "/v1/history?limit=1")).etag;
      preview = (await ask("POST", `${path}?dry_run=1`)).body;
    } catch (error) {
      data.fault = error;
      return redraw();
    }
    data.fault = null;
    question.ask({
      title: t("roll_back_title", { n: entry.revision }), text: preview.changes.length ? t("roll_back_text", { n: to }) : t("preview_same"), action: t("roll_back"), danger: true,
      more: () => h("div", null, preview.changes.map((each) => h("div", { key: each.target }, h("p", null, target(each.target)), diff(each.before, each.after)))),
      run: async (reason) => {
        await ask("POST", path, { etag, body: { reason: reason || null } });
        say(t("rolled_back"));
        if (revision) go("/changes");
        else lists.now();
      },
    });
  }

  const entryView = (entry) => h(
    "li",
    { class: "card change", key: entry.sequence },
    h("p", null, h("a", { href: `/changes/${entry.revision}` }, t("revision_n", { n: entry.revision })), " · ", h("time", { datetime: entry.at }, f.moment(entry.at, true)), " · ", h("strong", null, given(entry.by)), entry.reason && [" · ", given(`“${entry.reason}”`)]),
    (entry.changes || []).map((each) => h("div", { key: each.target }, h("p", null, target(each.target), " ", !each.after ? t("taken_back_word") : !each.before ? t("set_word") : t("changed_word")), diff(each.before, each.after))),
    h("p", { class: "quiet" }, h("code", null, entry.action), entry.address && ` · ${entry.address}`, entry.detail && ` · ${entry.detail}`),
    may("operator") && entry.revision > 0 && button(t("roll_back_before"), () => rollBack(entry), { class: "small", "aria-label": `${t("roll_back_before")} ${entry.revision}` }),
  );

  return {
    title: () => t("changes"),
    leave: lists.stop,
    view: () => [
      head(revision ? t("revision_n", { n: revision }) : t("changes"), api(), !revision && api()),
      revision ? h("p", { class: "crumbs", key: "crumbs" }, h("a", { href: "/changes" }, `‹ ${t("changes")}`)) : h("div", { class: "tools", key: "tools" }, search(by, t("search_changes"), lists.now), h("span", { class: "quiet" }, t("rules_rev", { n: data.current }))),
      problem(data.fault || data.error),
      !data.items && !data.error && quiet(t("loading"), "wait"),
      data.items && (data.items.length ? h("ol", { class: "plain changes", key: "list" }, data.items.map(entryView)) : quiet(by.q ? t("none_found_changes") : t("no_changes"), "none")),
      data.next && most < MOST && button(t("older"), () => {
        most = Math.min(MOST, most + 100);
        lists.now();
      }),
      question.view(),
    ],
  };
}
