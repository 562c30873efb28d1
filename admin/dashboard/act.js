// What can be done about a client: a limit for it alone, on this topic or everywhere, for a time; closing its connections.

import { ask, get } from "./api.js";
import { confirmation } from "./confirm.js";
import { h } from "./dom.js";
import { inFleet, lasting, restored } from "./edit.js";
import * as f from "./format.js";
import { button, field, given, input, problem, say, select } from "./parts.js";
import { isSum, ofMessages, partOf, segment } from "./router.js";
import { may, redraw, topicKey } from "./store.js";
import { t } from "./text.js";

const TIMES = ["30m", "2h", "8h", "1d", ""];
const WAIT_MS = 250; // before a preview, while somebody types
const RULE_NAME = 60; // characters of a rule's name

const GLOB = /[*?[\]]/; // a name with one of these would be read as a pattern
const UNITS = { s: 1, min: 60, h: 3600 };

/** Messages a second of a limit as it is typed; NaN: none. */
const perSecond = (text) => {
  const [, number, thousands, unit] = /^\s*([\d.]+)(k?)\/(s|min|h)\s*$/.exec(text) || [];
  return (number * (thousands ? 1000 : 1)) / UNITS[unit];
};

const escape = (char) => `\\U${char.codePointAt(0).toString(16).padStart(8, "0")}`;

/** A word as bash and zsh take it; one with control characters, which a terminal would obey when it is pasted, as escapes. */
const word = (text) =>
  /\p{C}/u.test(text) ? `$'${text.replace(/[\\']/g, "\\$&").replace(/\p{C}/gu, escape)}'` : /^[\w.:@/+=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;

/** The members of a rule's `match` that name one topic alone; null: none do. */
function matchOf({ protocol, topic }) {
  if (isSum({ topic })) return null;
  if (protocol !== "amqp") return GLOB.test(topic) ? null : { protocol, topic };
  let parts;
  try {
    parts = topic.split("/").map((part) => partOf(decodeURIComponent(part)));
  } catch {
    return null; // not UTF-8
  }
  const [vhost, exchange, key] = parts;
  return key === undefined || /[*#?[]/.test(parts.join("")) ? null : { protocol, vhost, exchange, routing_key: key };
}

/** A short number of a text: two names that are alike where they are cut, or where they have no letters a-z, are two rules. */
const hash = (text) => [...text].reduce((sum, char) => (Math.imul(sum, 31) + char.codePointAt(0)) >>> 0, 7).toString(36);

/** Actions on a client of a topic. `current()`: {now, refresh}, what the screen knows. view() draws questions and what was done. */
export function culpritActions(item, current) {
  const question = confirmation();
  let done = null; // {path, etag, before, expires, text}: a change just made
  let error = null;

  function limit(client) {
    const match = matchOf(item);
    const clients = current().now?.clients || [];
    const its = { client, ...clients.find((each) => each.client === client) };
    const rate = current().now?.limit?.messages_per_second;
    const form = { who: "client", where: match ? "topic" : "all", messages: `${Math.max(1, Math.floor((rate || 2) / 2))}/s`, time: "30m" };
    const job = { preview: null, errors: new Map(), timer: 0, asked: 0 };
    const thing = () => its[form.who];
    const operation = item.operation === "produce" ? "" : item.operation;
    const name = () => {
      const plain = `limit ${thing()} on ${f.topicName(item)}${operation && ` ${operation}`}`.replace(/[^\w.-]+/g, "-");
      return `${plain.slice(0, RULE_NAME - 8)}-${hash(`${form.who} ${thing()} ${topicKey(item)}`)}`;
    };
    const request = (reason) => {
      const body = { expires: form.time || null, reason: reason || null };
      if (form.where === "all") return ["PATCH", `/v1/limits/${operation && `${operation}/`}${form.who}/${segment(thing())}`, { ...body, messages: form.messages, mode: "enforce" }];
      return ["PUT", `/v1/rules/${segment(name())}`, { ...body, match: { ...match, operation: item.operation, [form.who]: thing() }, per: form.who, limit: { messages: form.messages }, position: "first" }];
    };
    const command = () => {
      const last = [`--messages ${word(form.messages)}`, form.time && `--for ${form.time}`, "--reason '...'"].filter(Boolean).join(" ");
      const [key, options] = [`${form.who} ${word(thing())}`, `${operation && `--operation ${operation} `}${last}`];
      if (form.where === "all") return `sluice limits set ${thing().startsWith("-") ? `${options} -- ${key}` : `${key} ${options}`}`; // else it is an option
      const [, , { match: all, per }] = request();
      return `sluice rules add ${word(name())} ${Object.entries(all).map(([key, value]) => `--match ${word(`${key}=${value}`)}`).join(" ")} --per ${per} ${last}`;
    };
    async function preview() {
      const mine = (job.asked += 1);
      const [method, path, body] = request();
      try {
        const found = (await ask(method, `${path}?dry_run=1&force=1`, { body })).body;
        if (mine === job.asked) Object.assign(job, { preview: found, errors: new Map(), fault: null });
      } catch (fault) {
        if (mine === job.asked) Object.assign(job, { preview: null, errors: fault.errors || new Map(), fault });
      }
      redraw();
    }
    const changed = (key) => (event) => {
      form[key] = event.target.value;
      clearTimeout(job.timer);
      job.timer = setTimeout(preview, WAIT_MS);
      redraw();
    };
    function wouldStop() {
      const some = clients.filter((each) => each[form.who] === thing());
      const all = some.reduce((sum, each) => sum + each.received_per_second, 0);
      if (form.where === "all") return null; // of what it sends to other topics nothing is known here
      const part = Math.max(0, 1 - perSecond(form.messages) / all);
      const line = (rate) => `${f.rate(part * rate)} / ${f.rate(rate)}`;
      return part >= 0 && all > 0 && t("act_would", { all: line(all), clients: some.map((each) => `${each.client} ${line(each.received_per_second)}`).join(", ") });
    }
    question.ask({
      title: t("act_title", { client }),
      action: t("act_do"),
      fields: () => h("div", { class: "fields" },
        (its.user || its.group) && field("act-who", t("act_who"), select(form, "who", ["client", "user", "group"].filter((who) => its[who] && !GLOB.test(its[who])).map((who) => [who, `${t(who)} ${its[who]}`]), { onchange: changed("who") })),
        field("act-where", t("act_where"), select(form, "where", [match && ["topic", t("act_topic")], ["all", t("act_all")]].filter(Boolean), { onchange: changed("where") })),
        field("act-messages", t("messages_limit"), input(form, "messages", { oninput: changed("messages") }), { hint: t("messages_hint"), error: [...job.errors].find(([pointer]) => pointer.endsWith("/messages"))?.[1] }),
        field("act-time", t("for_how_long"), select(form, "time", TIMES.map((time) => [time, time ? t(`time_${time}`) : t("until_taken_back")]), { onchange: changed("time") })),
        h("div", { class: "preview", role: "status", key: "preview" },
          h("p", null, job.preview ? t("act_preview", { who: thing(), limit: form.messages, topic: form.where === "all" ? t("act_all") : f.topicName(item) }) : t("preview_wait")),
          h("p", null, wouldStop(), wouldStop() && inFleet()),
          problem(job.fault),
          (job.preview?.remarks || []).map((text, at) => h("p", { key: at }, text)),
          h("p", { class: "command" }, h("code", null, command()), " ", navigator.clipboard && button(t("act_copy"), () => navigator.clipboard.writeText(command()).then(() => say(t("act_copied")), () => {}), { class: "small" })))),
      run: async (reason) => {
        const [method, path, body] = request(reason);
        const { before } = (await ask(method, `${path}?dry_run=1&force=1`, { body })).body.changes[0];
        const { etag, body: saved } = await ask(method, `${path}?force=1`, { body });
        done = { path, etag, before, expires: (saved.live || saved.override)?.expires, text: t("act_done", { who: thing(), limit: form.messages }) };
        say(done.text);
        current().refresh();
      },
    });
    preview();
  }

  async function close(client) {
    const found = [];
    for (let next = ""; next !== null; ) { // all pages: those of 10.0.0.12 are found for 10.0.0.1, too
      const page = await get(`/v1/connections?q=${encodeURIComponent(client)}&limit=500${next && `&cursor=${encodeURIComponent(next)}`}`);
      found.push(...page.items.filter((each) => f.host(each.client).replace(/[[\]]/g, "") === client));
      next = page.next ?? null;
    }
    question.ask({ title: t("act_close_title", { n: found.length, client }), text: t("close_text") + (found.some((each) => each.held_messages) ? t("close_waiting") : ""), action: t("close"), danger: true, run: async (reason) => {
      for (const each of found) await ask("DELETE", `/v1/connections/${each.id}`, { reason }).catch((fault) => { if (fault.status !== 404) throw fault; });
      say(t("closed"));
    } });
  }

  async function takeBack() {
    const before = lasting(done.before);
    const body = before ? { ...(before.rule || restored(before)), expires: before.expires, reason: before.reason || t("reason_undo") } : undefined;
    try {
      await ask(before ? "PUT" : "DELETE", done.path, { etag: done.etag, body });
      done = null;
      error = null;
      say(t("taken_back"));
      current().refresh();
    } catch (fault) {
      error = fault;
    }
    redraw();
  }

  return {
    limit,
    /** The buttons beside a client. */
    ways: (client) => may("operator") && client && h("span", { class: "ways" },
      ofMessages(item) && button(t("act_limit"), () => limit(client), { class: "small", "aria-label": `${t("act_limit")}: ${client}` }),
      button(t("act_close"), () => close(client), { class: "small", "aria-label": `${t("act_close")}: ${client}` })),
    view: () => [
      lasting(done) && h("div", { class: "notice done good", key: "acted", role: "status" }, h("p", null, given(done.text), " · ", done.expires ? t("ends_in", { time: f.until(done.expires) }) : t("no_end")), button(lasting(done.before) ? t("undo_to", { limit: f.limitText(done.before.rule?.limit || done.before) }) : t("act_undo"), takeBack, { id: "act-undo" }), h("a", { href: "/changes" }, t("see_history"))),
      problem(error),
      question.view(),
    ],
  };
}
