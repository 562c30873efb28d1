// The change of a topic's limit: presets, a preview by the gateway's own dry run, a reason, an end, and the way back.

import { ask, get } from "./api.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { described, dialog, field, problem, say } from "./parts.js";
import { seriesPath } from "./router.js";
import { redraw, state, topicKey } from "./store.js";
import { t } from "./text.js";

const PREVIEW_AFTER_MS = 250;
const TIMES = ["30m", "2h", "8h", "1d", "7d", ""];
const RESTORED = ["messages", "bytes", "burst", "concurrent", "action", "reply", "mode", "open_for", "max_delay", "fallback", "candidate", "expires", "reason"];

/** Rounded up to two digits: 234 is 240. */
export function nice(value) {
  const whole = Math.max(1, Math.ceil(value));
  const step = 10 ** Math.max(0, String(whole).length - 2);
  return Math.ceil(whole / step) * step;
}

/** The rate that 95 of 100 points of the last hour stay below; null where too little is known. */
export function lastHour(series) {
  const points = (series?.points?.received || []).slice(-360).filter((value) => value !== null && value > 0);
  if (points.length < 3) return null;
  points.sort((one, other) => one - other);
  return points[Math.min(points.length - 1, Math.floor(points.length * 0.95))];
}

export function editor(item, path, { open, current, refresh }) {
  const form = { open, messages: "", bytes: "", time: "30m", reason: "", more: false };
  const job = { errors: new Map(), error: null, preview: null, busy: false, done: null, conflict: null, base: null, etag: null, hour: null, touched: false };
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
      job.hour = lastHour(await get(seriesPath(item, "24h"), { signal: controller.signal }));
      if (job.hour === null) job.hour = lastHour(await get(seriesPath(item, "15m"), { signal: controller.signal }));
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
      } else saved = await ask("DELETE", `${path}?reason=${encodeURIComponent(t("reason_undo"))}`, { etag });
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
      const saved = await ask("DELETE", `${path}?reason=${encodeURIComponent(form.reason.trim() || t("reason_taken_back"))}`, { etag: job.etag });
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
    if (job.hour) found.push([`${nice(job.hour)}/s`, t("preset_hour", { rate: `${nice(job.hour)}/s` })]);
    if (holds) found.push([`${nice(holds * 2)}/s`, t("preset_twice", { rate: `${nice(holds * 2)}/s` })], [`${Math.max(1, Math.floor(holds / 2))}/s`, t("preset_half", { rate: `${Math.max(1, Math.floor(holds / 2))}/s` })]);
    return h("div", { class: "presets", role: "group", "aria-label": t("presets") }, found.map(([value, text]) =>
      h("button", { type: "button", key: text, class: "small", "aria-pressed": String(form.messages === value), onclick: () => changed("messages", value) }, text)));
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
  const input = (name, more = {}, hint = true) => h("input", { id: `edit-${name}`, value: form[name], autocomplete: "off", spellcheck: "false", oninput: (event) => changed(name, event.target.value), ...described(`edit-${name}`, hint, error(name)), ...more });

  function formView() {
    return h(
      "form",
      { class: "card edit", onsubmit: apply, novalidate: true, key: "form", "aria-labelledby": "edit-title" },
      h("h2", { id: "edit-title" }, t("change_limit")),
      h("p", { class: "quiet" }, t("presets_line")), presets(),
      h("div", { class: "fields" },
        field({ id: "edit-messages", label: t("messages_limit"), hint: t("messages_hint"), error: error("messages"), children: input("messages") }),
        field({ id: "edit-time", label: t("for_how_long"), error: error("expires"), children: h("select", { id: "edit-time", value: form.time, onchange: (event) => changed("time", event.target.value), ...described("edit-time", false, error("expires")) }, TIMES.map((time) => h("option", { key: time, value: time, selected: form.time === time }, time ? t(`time_${time}`) : t("until_taken_back")))) }),
        field({ id: "edit-reason", label: t("reason"), hint: t("reason_hint"), error: error("reason"), children: input("reason", { maxlength: 500 }) }),
        form.more && field({ id: "edit-bytes", label: t("bytes_limit"), hint: t("bytes_hint"), error: error("bytes"), children: input("bytes") })),
      previewView(),
      problem(job.error),
      h("div", { class: "buttons" },
        h("button", { type: "submit", class: "main", disabled: job.busy }, form.time ? t("apply_for", { time: t(`time_${form.time}`) }) : t("apply")),
        h("button", { type: "button", onclick: () => close() }, t("cancel")),
        !form.more && h("button", { type: "button", class: "link", onclick: () => {
          form.more = true;
          redraw();
        } }, t("limit_bytes_too")),
        job.base && h("button", { type: "button", class: "link", disabled: job.busy, onclick: takeBack }, t("take_back"))),
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
      !undone && h("button", { id: "undo", type: "button", disabled: job.busy, onclick: undo }, t("undo")), h("a", { href: "/changes" }, t("see_history")));
  }

  function version(title, one) {
    return h("div", { class: "version" }, h("h3", null, title), one
      ? h("dl", { class: "pairs" }, [["messages_limit", one.messages], ["bytes_limit", one.bytes], ["by", one.by], ["reason", one.reason], ["ends", one.expires && !TIMES.includes(one.expires) ? f.moment(one.expires) : one.expires ? t(`time_${one.expires}`) : t("no_end")]].map(([name, value]) => value ? h("div", { key: name }, h("dt", null, t(name)), h("dd", null, h("bdi", null, value))) : null))
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
    return dialog({ title: t("conflict_title"), onclose: forget, className: "conflict", children: [
      h("p", null, t("conflict_text")),
      h("div", { class: "versions" }, version(t("conflict_theirs"), theirs), version(t("conflict_yours"), { ...body(), by: state.session.name })),
      h("div", { class: "buttons" },
        h("button", { type: "button", class: "main", onclick: () => {
          job.conflict = null;
          form.open = false;
          job.base = theirs;
          refresh();
          redraw();
        } }, t("keep_theirs")),
        h("button", { type: "button", onclick: () => {
          forget();
          apply(null, etag);
        } }, t("apply_mine")),
        h("button", { type: "button", onclick: forget }, t("go_on_editing"))),
    ] });
  }

  return {
    leave: () => {
      clearTimeout(timer);
      controller.abort();
    },
    view: () => h("div", { class: "editing", key: "editing" },
      job.done && doneView(),
      form.open ? formView() : h("div", { class: "buttons", key: "open" }, h("button", { id: "edit-open", type: "button", class: "main", onclick: show }, t("change_limit")), job.error && problem(job.error)),
      job.conflict && conflictView()),
  };
}

const FIELDS = ["messages", "bytes", "expires", "reason"];
const limitOf = (override) => [override?.messages, override?.bytes].filter(Boolean).join(" · ") || "–";
