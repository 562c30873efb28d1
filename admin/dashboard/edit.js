// The change of a topic's limit: presets, a preview by the gateway's own dry run, a reason, an end, and the way back.

import { ask, get } from "./api.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { button, buttons, dialog, field, given, input, pairs, problem, quiet, say, select } from "./parts.js";
import { seriesPath } from "./router.js";
import { redraw, state, topicKey } from "./store.js";
import { t } from "./text.js";

const PREVIEW_AFTER_MS = 250;
const FEWEST = 3; // points with traffic that a preset is made of
const TIMES = ["30m", "2h", "8h", "1d", "7d", ""];
const RESTORED = ["messages", "bytes", "burst", "concurrent", "action", "reply", "mode", "open_for", "max_delay", "fallback", "candidate", "expires", "reason"];

/** Rounded up to two digits: 234 is 240. */
export function nice(value) {
  const whole = Math.max(1, Math.ceil(value));
  const step = 10 ** Math.max(0, String(whole).length - 2);
  return Math.ceil(whole / step) * step;
}

/** The rate that 95 of 100 of the last `most` points stay below, of those with traffic; null where too few are known. */
function usual(series, most) {
  const points = (series.points.received || []).slice(-most).filter((value) => value > 0);
  if (points.length < FEWEST) return null;
  points.sort((one, other) => one - other);
  return points[Math.min(points.length - 1, Math.floor(points.length * 0.95))];
}

export function editor(item, path, { open, current, refresh }) {
  const form = { open, messages: "", bytes: "", time: "30m", reason: "", more: false };
  const job = { errors: new Map(), error: null, preview: null, busy: false, done: null, conflict: null, base: null, etag: null, lately: null, touched: false };
  let timer = 0;
  let asked = 0;
  const controller = new AbortController();

  const level = () => current().body?.levels?.find((each) => each.per === "topic");
  const body = () => {
    const found = { reason: form.reason.trim() || null, expires: form.time || null };
    found.messages = form.messages.trim() || null;
    if (form.bytes.trim()) found.bytes = form.bytes.trim();
    else if (job.base?.bytes) found.bytes = null;
    return found;
  };

  async function begin() {
    try {
      const read = await ask("GET", path, { signal: controller.signal });
      job.base = read.body.override;
      job.etag = read.etag;
      if (!job.touched) {
        const holds = read.body.levels?.find((each) => each.per === "topic");
        form.messages = job.base?.messages || holds?.limit.messages || "";
        form.bytes = job.base?.bytes || "";
        form.more = Boolean(form.bytes);
        const event = state.over.get(topicKey(item));
        form.reason = event?.since ? t("reason_over", { since: f.moment(event.since) }) : "";
      }
      redraw();
    } catch (error) {
      if (error.name !== "AbortError") job.error = error;
    }
    try {
      for (const [range, most, text] of [["24h", 360, "preset_hour"], ["15m", 900, "preset_minutes"]]) { // the second where there are no ten seconds yet
        const rate = usual(await get(seriesPath(item, range), { signal: controller.signal }), most);
        job.lately = rate && { rate: `${nice(rate)}/s`, text };
        if (rate) break;
      }
    } catch { /* no preset of it, then */ }
    redraw();
  }
  if (open) begin();

  function changed(name, value) {
    form[name] = value;
    job.touched = true;
    job.done = null;
    clearTimeout(timer);
    timer = setTimeout(preview, PREVIEW_AFTER_MS);
    redraw();
  }

  async function preview() {
    const mine = (asked += 1);
    try {
      const found = await ask("PATCH", `${path}?dry_run=1`, { body: body(), signal: controller.signal });
      if (mine !== asked) return;
      job.preview = found.body;
      job.errors = new Map();
      job.error = null;
    } catch (error) {
      if (error.name === "AbortError" || mine !== asked) return;
      job.preview = null;
      take(error);
    }
    redraw();
  }

  function take(error) {
    job.errors = error.errors || new Map();
    job.error = job.errors.size && [...job.errors.keys()].every((pointer) => FIELDS.includes(pointer.split("/")[1])) ? null : error;
  }

  async function apply(event, etag = job.etag) {
    event?.preventDefault();
    if (job.busy) return;
    clearTimeout(timer);
    asked += 1;
    job.busy = true;
    job.error = null;
    redraw();
    const before = job.base;
    try {
      const saved = await ask("PATCH", path, { body: body(), etag });
      job.done = { before, after: saved.body.override, etag: saved.etag, undone: false };
      job.base = saved.body.override;
      job.etag = saved.etag;
      job.preview = null;
      job.conflict = null;
      job.errors = new Map();
      form.open = false;
      say(t("saved", { limit: limitOf(saved.body.override) }));
      refresh();
    } catch (error) {
      if (error.status === 412) await conflict();
      else take(error);
    }
    job.busy = false;
    redraw();
    const wrong = [...job.errors.keys()][0]?.split("/")[1];
    requestAnimationFrame(() => document.getElementById(wrong ? `edit-${wrong}` : "undo")?.focus()); // once it is drawn
  }

  /** Somebody else was faster: both versions are shown, and nothing is written. */
  async function conflict() {
    job.error = null;
    try {
      const read = await ask("GET", path);
      job.conflict = { theirs: read.body.override, etag: read.etag };
    } catch (error) {
      job.error = error;
    }
  }

  async function undo() {
    const { before, etag } = job.done;
    job.busy = true;
    redraw();
    try {
      let saved;
      if (before) {
        const was = {};
        for (const name of RESTORED) if (before[name] !== null && before[name] !== undefined && before[name] !== "") was[name] = before[name];
        saved = await ask("PUT", path, { body: { ...was, reason: was.reason || t("reason_undo") }, etag });
      } else saved = await ask("DELETE", path, { etag, reason: t("reason_undo") });
      job.base = before;
      job.etag = saved.etag;
      job.done = { ...job.done, undone: true };
      say(t("undone"));
      refresh();
    } catch (error) {
      if (error.status === 412) await conflict();
      else job.error = error;
    }
    job.busy = false;
    redraw();
  }

  async function takeBack() {
    job.busy = true;
    redraw();
    try {
      const before = job.base;
      const saved = await ask("DELETE", path, { etag: job.etag, reason: form.reason.trim() || t("reason_taken_back") });
      job.done = { before, after: null, etag: saved.etag, undone: false };
      job.base = null;
      job.etag = saved.etag;
      form.open = false;
      refresh();
    } catch (error) {
      if (error.status === 412) await conflict();
      else job.error = error;
    }
    job.busy = false;
    redraw();
  }

  function presets() {
    const holds = level()?.limit.messages_per_second;
    const found = [];
    if (job.lately) found.push([job.lately.rate, t(job.lately.text, job.lately)]);
    if (holds) for (const [rate, text] of [[`${nice(holds * 2)}/s`, "preset_twice"], [`${Math.max(1, Math.floor(holds / 2))}/s`, "preset_half"]]) found.push([rate, t(text, { rate })]);
    return h("div", { class: "presets", role: "group", "aria-label": t("presets") }, found.map(([value, text]) =>
      button(text, () => changed("messages", value), { key: text, class: "small", "aria-pressed": String(form.messages === value) })));
  }

  function previewView() {
    if (!job.preview) return h("p", { class: "quiet preview" }, t("preview_wait"));
    const { topics, topics_affected: affected, would_have_refused: would } = job.preview;
    const one = topics[0];
    const limits = (levels) => f.limitText(levels?.find((each) => each.per === "topic")?.limit);
    return h("div", { class: "preview", role: "status" },
      one && h("p", null, h("s", null, limits(one.before)), " → ", h("strong", null, limits(one.after)), affected > 1 && ` · ${t("topics_affected", { n: affected })}`),
      !one && h("p", null, t("preview_same")),
      would && h("p", null, t("would_have_refused", { n: f.count(would.messages), of: f.count(would.of), time: f.duration(would.seconds) })));
  }

  const error = (name) => job.errors.get(`/${name}`);
  const line = (name, more) => input(form, name, { oninput: (event) => changed(name, event.target.value), ...more });
  const times = () => TIMES.map((time) => [time, time ? t(`time_${time}`) : t("until_taken_back")]);

  function formView() {
    return h(
      "form",
      { class: "card edit", onsubmit: apply, novalidate: true, key: "form", "aria-labelledby": "edit-title" },
      h("h2", { id: "edit-title" }, t("change_limit")),
      quiet(t("presets_line")), presets(),
      h("div", { class: "fields" },
        field("edit-messages", t("messages_limit"), line("messages"), { hint: t("messages_hint"), error: error("messages") }),
        field("edit-time", t("for_how_long"), select(form, "time", times(), { onchange: (event) => changed("time", event.target.value) }), { error: error("expires") }),
        field("edit-reason", t("reason"), line("reason", { maxlength: 500 }), { hint: t("reason_hint"), error: error("reason") }),
        form.more && field("edit-bytes", t("bytes_limit"), line("bytes"), { hint: t("bytes_hint"), error: error("bytes") })),
      previewView(),
      problem(job.error),
      buttons(
        button(form.time ? t("apply_for", { time: t(`time_${form.time}`) }) : t("apply"), null, { type: "submit", class: "main", disabled: job.busy }),
        button(t("cancel"), close),
        !form.more && button(t("limit_bytes_too"), () => {
          form.more = true;
          redraw();
        }, { class: "link" }),
        job.base && button(t("take_back"), takeBack, { class: "link", disabled: job.busy })),
    );
  }

  function close() {
    form.open = false;
    redraw();
    requestAnimationFrame(() => document.getElementById("edit-open")?.focus());
  }

  function show() {
    form.open = true;
    job.done = null;
    job.touched = false;
    job.preview = null;
    begin().then(() => {
      document.getElementById("edit-messages")?.focus();
    });
    redraw();
  }

  function doneView() {
    const { after, undone } = job.done;
    return h("div", { class: `notice done ${undone ? "" : "good"}`, key: "done", role: "status" },
      h("p", null, undone ? t("undone") : after ? [t("in_force", { limit: limitOf(after) }), after.expires ? [" · ", t("ends_in", { time: f.until(after.expires) })] : ` · ${t("no_end")}`] : t("taken_back")),
      !undone && button(t("undo"), undo, { id: "undo", disabled: job.busy }), h("a", { href: "/changes" }, t("see_history")));
  }

  function version(title, one) {
    return h("div", { class: "version" }, h("h3", null, title), one
      ? pairs([["messages_limit", one.messages], ["bytes_limit", one.bytes], ["by", one.by && given(one.by)], ["reason", one.reason && given(one.reason)], ["ends", !one.expires ? t("no_end") : TIMES.includes(one.expires) ? t(`time_${one.expires}`) : f.moment(one.expires)]])
      : h("p", null, t("no_live_change")));
  }

  function conflictView() {
    const { theirs, etag } = job.conflict;
    const forget = () => {
      job.conflict = null;
      job.base = theirs;
      job.etag = etag;
      redraw();
    };
    return dialog(t("conflict_title"), forget, "conflict",
      h("p", null, t("conflict_text")),
      h("div", { class: "versions" }, version(t("conflict_theirs"), theirs), version(t("conflict_yours"), { ...body(), by: state.session.name })),
      buttons(
        button(t("keep_theirs"), () => {
          form.open = false;
          forget();
          refresh();
        }, { class: "main" }),
        button(t("apply_mine"), () => {
          forget();
          apply(null, etag);
        }),
        button(t("go_on_editing"), forget)));
  }

  return {
    leave: () => {
      clearTimeout(timer);
      controller.abort();
    },
    view: () => h("div", { class: "editing", key: "editing" },
      job.done && doneView(),
      form.open ? formView() : h("div", { class: "buttons", key: "open" }, button(t("change_limit"), show, { id: "edit-open", class: "main" }), problem(job.error)),
      job.conflict && conflictView()),
  };
}

const FIELDS = ["messages", "bytes", "expires", "reason"];
const limitOf = (override) => [override?.messages, override?.bytes].filter(Boolean).join(" · ") || "–";
