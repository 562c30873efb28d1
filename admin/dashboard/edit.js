// The change of a topic's limit: presets, a preview by the gateway's own dry run, a reason, an end, and the way back.

import { ask, get, Problem } from "./api.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { button, buttons, dialog, field, given, input, pairs, problem, quiet, say, select } from "./parts.js";
import { amend, seriesPath } from "./router.js";
import { redraw, set, state, topicKey } from "./store.js";
import { t } from "./text.js";

const PREVIEW_AFTER_MS = 250;
const FEWEST = 3; // points with traffic that a preset is made of
const MOST = 360; // points: of ten seconds, an hour
const TIMES = ["30m", "2h", "8h", "1d", "7d", ""];
const SHORTEST_MS = 1_800_000; // of these
const MODES = ["enforce", "shadow", "off"];
const RESTORED = ["messages", "bytes", "burst", "concurrent", "action", "reply", "mode", "open_for", "max_delay", "fallback", "candidate", "expires", "reason"];

/** That what this gateway has counted is not all that the limit is for; "": it is. */
export function inFleet() {
  const gateways = state.snapshot?.fleet?.gateways || 1;
  return gateways > 1 ? ` ${t("this_gateway_alone", { n: gateways })}` : "";
}

/** Rounded up to two digits: 234 is 240. */
export function nice(value) {
  const whole = Math.max(1, Math.ceil(value));
  const step = 10 ** Math.max(0, String(whole).length - 2);
  return Math.ceil(whole / step) * step;
}

/** Of `levels` that of the topic itself which is enforced or counted: of what is done with it, as a topic that is consumed has two limits. */
export const topicLevel = (levels, { operation }) => levels?.find((each) => each.per === "topic" && each.origin !== "quota-shadow" && (each.operation || "produce") === operation);

/** What the topic sends within its limit: 95 of 100 of the last points without refusals and waiting stay below. Or null. */
function usual({ points: { received = [], refused, waiting } }) {
  const points = received.filter((value, at) => value > 0 && !refused?.[at] && !waiting?.[at]).slice(-MOST);
  if (points.length < FEWEST) return null;
  points.sort((one, other) => one - other);
  return points[Math.min(points.length - 1, Math.floor(points.length * 0.95))];
}

export function editor(item, path, { open, current, refresh }) {
  const form = { open, messages: "", bytes: "", mode: "enforce", time: "30m", reason: "", more: false };
  const job = { errors: new Map(), error: null, preview: null, busy: false, done: null, conflict: null, base: null, etag: null, usual: null, touched: new Set(), reading: false, left: false, seen: undefined };
  let timer = 0;
  let asked = 0;
  const controller = new AbortController();

  const to = (query = "") => { // a topic that was seen is no pattern, whatever its name
    const all = [query, current().now && "literal=1"].filter(Boolean).join("&");
    return all ? `${path}?${all}` : path;
  };
  const level = () => topicLevel(current().body?.levels, item);
  const body = () => {
    const found = { reason: form.reason.trim() || null, expires: form.time || null };
    found.messages = form.messages.trim() || null;
    found.mode = form.mode;
    if (form.bytes.trim()) found.bytes = form.bytes.trim();
    else if (job.base?.bytes) found.bytes = null;
    return found;
  };

  let reading = null; // of the limit in force: what is applied waits for it, as it says which one was seen
  async function read() {
    job.reading = true;
    try {
      const found = await ask("GET", path, { signal: controller.signal });
      job.base = found.body.override;
      job.etag = found.etag;
      const holds = topicLevel(found.body.levels, item);
      const fill = (name, value) => job.touched.has(name) || (form[name] = value); // what was typed meanwhile stays
      fill("messages", job.base?.messages || holds?.limit.messages || "");
      fill("bytes", job.base?.bytes || "");
      fill("mode", job.base?.mode || "enforce");
      fill("time", job.base && !(untilEnd(job.base) < SHORTEST_MS) ? job.base.expires || "" : TIMES[0]);
      form.more = Boolean(form.bytes) || job.touched.has("bytes");
      fill("reason", "");
    } finally {
      job.reading = false;
    }
  }

  async function begin() {
    try {
      await (reading = read());
      if (job.touched.size) preview();
      redraw();
    } catch (error) {
      if (error.name !== "AbortError") job.error = error;
    }
    try {
      for (const range of ["24h", "15m"]) { // the second where there are no ten seconds yet
        job.usual = usual(await get(seriesPath(item, range), { signal: controller.signal }));
        if (job.usual) break;
      }
    } catch { /* no preset of it, then */ }
    redraw();
  }
  if (open) begin();

  function changed(name, value) {
    form[name] = value;
    job.touched.add(name);
    forgetDone();
    clearTimeout(timer);
    timer = setTimeout(preview, PREVIEW_AFTER_MS);
    redraw();
  }

  /** What was undone or taken back need not be told any more; what is in force is. */
  function forgetDone() {
    if (job.done?.undone || !job.done?.after) job.done = null;
  }

  async function preview() {
    const mine = (asked += 1);
    try {
      const found = await ask("PATCH", to("dry_run=1"), { body: body(), signal: controller.signal });
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

  /** Changes the limit by `run(etag)`, whose answer says what was done ({before, after, etag, undone}), or shows why not.
   *
   * `mine()`: what is meant to hold then. `etag`: of theirs, over which it is done where somebody else was faster.
   */
  async function change(run, mine, etag = null) {
    if (job.busy) return;
    job.busy = true;
    job.error = null;
    redraw();
    try {
      const done = await run(etag);
      job.done = done;
      job.base = done.undone ? done.before : done.after;
      job.etag = done.etag;
      job.preview = null;
      job.errors = new Map();
      if (job.left) set({ told: { text: t("left_done", { what: f.topicName(item), limit: done.undone ? limitOf(done.before) : limitOf(done.after) }) } });
      refresh();
    } catch (error) {
      if (job.left) return set({ told: { text: t("left_failed", { what: f.topicName(item), error: error.status === 412 ? t("conflict_title") : error.status ? error.message : t("unreachable") }), bad: true } });
      if (error.status === 412) await conflict(run, mine);
      else take(error);
      if (!form.open && error.status !== 412) job.error = error; // no field can say it
    }
    job.busy = false;
    if (form.open && !job.error && !job.errors.size) preview();
    redraw();
  }

  async function save(etag) {
    await (reading = reading.catch(read));
    const saved = await ask("PATCH", to(), { body: body(), etag: etag || job.etag });
    shut();
    say(t("saved", { limit: limitOf(saved.body.override) }));
    return { before: job.base && { mode: level()?.mode, ...job.base }, after: saved.body.override, etag: saved.etag };
  }

  async function apply(event) {
    event.preventDefault();
    clearTimeout(timer);
    asked += 1;
    job.touched.add("time"); // the button has said it
    await change(save, () => ({ ...body(), by: state.session.name }));
    focusOutcome();
  }

  function focusOutcome() {
    const wrong = [...job.errors.keys()][0]?.split("/")[1];
    requestAnimationFrame(() => document.getElementById(wrong ? `edit-${wrong}` : "undo")?.focus()); // once it is drawn
  }

  /** Somebody else was faster: both versions are shown, and nothing is written. */
  async function conflict(run, mine) {
    job.error = null;
    try {
      const read = await ask("GET", path);
      job.conflict = { theirs: read.body.override, etag: read.etag, run, mine };
    } catch (error) {
      job.error = error;
    }
  }

  /** The live change in force as the screen has read it: what is not of this form is looked up in the history, for whoever comes later. */
  async function seen(override) {
    const at = override?.at;
    if (job.busy || at === job.seen) return;
    job.seen = at;
    if (at && [job.done?.after?.at, job.done?.restored].includes(at)) return;
    if (!job.done?.undone && job.done?.after) job.done = null; // it has ended, or somebody has changed it
    if (!override) return;
    const target = path.slice("/v1/".length);
    let history;
    try {
      history = await get(`/v1/history?limit=20&target=${encodeURIComponent(target)}`, { signal: controller.signal });
    } catch (error) {
      job.seen = undefined; // the next look tries again
      throw error;
    }
    const change = history.items.flatMap((entry) => entry.changes).find((each) => each.target === target && each.after?.at === at);
    if (job.seen !== at || job.busy) return;
    job.done = { before: lasting(change?.before), after: override, undone: false, unknown: !change };
    redraw();
  }

  /** The ETag of the key as it is now, while `after` is in force: the rule beneath may be another since, as by the nightly quotas. */
  async function etagOf(after) {
    const read = await ask("GET", path);
    if (read.body.override?.at !== after.at) throw new Problem(412, {});
    return read.etag;
  }

  function undo() {
    const { after } = job.done; // what the screen reads meanwhile may be another's
    const before = lasting(job.done.before);
    return change(async (etag) => {
      etag ||= await etagOf(after);
      const saved = before ? await ask("PUT", to(), { body: { ...restored(before), reason: before.reason || t("reason_undo") }, etag }) : await ask("DELETE", path, { etag, reason: t("reason_undo") });
      say(t("undone"));
      return { before, after, etag: saved.etag, undone: true, restored: saved.body.override?.at };
    }, () => before);
  }

  const takeBack = () => change(async (etag) => {
    const saved = await ask("DELETE", path, { etag: etag || job.etag, reason: form.reason.trim() || t("reason_taken_back") });
    shut();
    return { before: job.base, after: null, etag: saved.etag };
  }, () => null);

  function presets() {
    const holds = level()?.limit.messages_per_second;
    const found = []; // [messages per second, text, what is written: as a rule if it is not that]
    if (job.usual && !inFleet()) found.push([job.usual <= holds ? Math.min(nice(job.usual), Math.floor(holds) || Infinity) : nice(job.usual), "preset_usual"]);
    if (holds >= 2) found.push([Math.floor(holds / 2), "preset_half"]);
    if (holds) found.push([holds, "preset_now", level().limit.messages], [nice(holds * 2), "preset_twice"]);
    const raises = (each) => holds && each[0] > holds;
    return h("div", { class: "presets", role: "group", "aria-label": t("presets") }, [...found.filter((each) => !raises(each)), ...found.filter(raises)].map((each) => {
      const [number, text, written = `${number}/s`] = each;
      const words = t(text, { rate: f.readable(written) });
      return button(raises(each) ? t("preset_raises", { words }) : words, () => changed("messages", written), { key: text, class: raises(each) ? "small raises" : "small", "aria-pressed": String(form.messages === written) });
    }));
  }

  function previewView() {
    if (!job.preview) return h("p", { class: "quiet preview" }, t("preview_wait"));
    const { topics, topics_affected: affected, would_have_refused: would, remarks } = job.preview;
    const one = topics[0];
    const limits = (levels) => f.levelText(topicLevel(levels, item));
    const ends = one && topicLevel(one.after, item)?.expires;
    const lost = ends && lasting(job.base) && untilEnd({ expires: ends }) < untilEnd(job.base); // what is in force would have lasted longer
    return h("div", { class: "preview", role: "status" },
      one && h("p", null, h("s", null, limits(one.before)), " → ", h("strong", null, limits(one.after)), affected > 1 && ` · ${t("topics_affected", { n: affected })}`),
      !one && h("p", null, t("preview_same")),
      lost && h("p", { key: "lost" }, t("then_rule", { limit: limitOf(job.base), by: job.base.by })),
      remarks.map((text, at) => h("p", { key: at }, text)),
      would && h("p", null, t("would_have_refused", { n: f.count(would.messages), of: f.count(would.of), time: f.duration(would.seconds) }), inFleet()));
  }

  const error = (name) => job.errors.get(`/${name}`);
  const line = (name, more) => input(form, name, { oninput: (event) => changed(name, event.target.value), ...more });
  const times = () => [...(TIMES.includes(form.time) ? [] : [[form.time, t("holds_until", { at: f.moment(form.time), time: f.until(form.time) })]]), ...TIMES.map((time) => [time, time ? t(`time_${time}`) : t("until_taken_back")])];

  function formView() {
    const since = !job.touched.has("reason") && !form.reason && state.over.get(topicKey(item))?.since;
    if (since) form.reason = t("reason_over", { since: `${since.slice(0, 16).replace("T", " ")}Z` }); // UTC: the history has readers elsewhere
    return h(
      "form",
      { class: "card edit", "aria-busy": job.reading ? "true" : null, onsubmit: apply, novalidate: true, key: "form", "aria-labelledby": "edit-title" },
      h("h2", { id: "edit-title" }, t("change_limit")),
      quiet(t("presets_line")), presets(),
      h("div", { class: "fields" },
        field("edit-messages", t("messages_limit"), line("messages"), { hint: t("messages_hint"), error: error("messages") }),
        field("edit-mode", t("mode"), select(form, "mode", MODES.map((mode) => [mode, t(`set_mode_${mode}`)]), { onchange: (event) => changed("mode", event.target.value) }), { error: error("mode") }),
        field("edit-time", t("for_how_long"), select(form, "time", times(), { onchange: (event) => changed("time", event.target.value) }), { error: error("expires") }),
        field("edit-reason", t("reason"), line("reason", { maxlength: 500 }), { hint: t("reason_hint"), error: error("reason") }),
        form.more && field("edit-bytes", t("bytes_limit"), line("bytes"), { hint: t("bytes_hint"), error: error("bytes") })),
      previewView(),
      problem(job.error),
      buttons(
        button(form.time && TIMES.includes(form.time) ? t("apply_for", { time: t(`time_${form.time}`) }) : t("apply"), null, { type: "submit", class: "main", disabled: job.busy }),
        button(t("cancel"), close),
        !form.more && button(t("limit_bytes_too"), () => {
          form.more = true;
          redraw();
        }, { class: "link" }),
        job.base && button(t("take_back"), takeBack, { class: "link", disabled: job.busy })),
    );
  }

  /** The address is the topic's own again: loaded once more, or sent to somebody, it opens no form. */
  function shut() {
    form.open = false;
    if (!job.left) amend({ edit: "" });
  }

  function close() {
    shut();
    redraw();
    requestAnimationFrame(() => document.getElementById("edit-open")?.focus());
  }

  function show() {
    form.open = true;
    forgetDone();
    job.touched = new Set();
    job.preview = null;
    begin().then(() => {
      document.getElementById("edit-messages")?.focus();
    });
    redraw();
  }

  function doneView() {
    const { after, undone, unknown } = job.done;
    const before = lasting(job.done.before);
    return h("div", { class: `notice done ${undone ? "" : "good"}`, key: "done", role: "status" },
      h("p", null, undone ? t("undone") : after ? [t("in_force", { limit: limitOf(after) }), " · ", given(after.by), " · ", after.expires ? t("ends_in", { time: f.until(after.expires) }) : t("no_end")] : t("taken_back")),
      !undone && !unknown && button(before ? t("undo_to", { limit: limitOf(before) }) : t("undo_rule"), undo, { id: "undo", disabled: job.busy }), h("a", { href: "/changes" }, t("see_history")));
  }

  function version(title, one) {
    return h("div", { class: "version" }, h("h3", null, title), one
      ? pairs([["messages_limit", one.messages], ["bytes_limit", one.bytes], ["mode", one.mode && t(`mode_${one.mode}`)], ["by", one.by && given(one.by)], ["reason", one.reason && given(one.reason)], ["ends", !one.expires ? t("no_end") : TIMES.includes(one.expires) ? t(`time_${one.expires}`) : f.moment(one.expires)]])
      : h("p", null, t("no_live_changes")));
  }

  function conflictView() {
    const { theirs, etag, run, mine } = job.conflict;
    const forget = () => {
      job.conflict = null;
      job.base = theirs;
      job.etag = etag;
      redraw();
    };
    return dialog(t("conflict_title"), forget, "conflict",
      h("p", null, t("conflict_text")),
      h("div", { class: "versions" }, version(t("conflict_theirs"), theirs), version(t("conflict_yours"), mine())),
      buttons(
        button(t("keep_theirs"), () => {
          shut();
          forget();
          refresh();
        }, { class: "main" }),
        button(t("apply_mine"), () => {
          forget();
          change(run, mine, etag).then(focusOutcome);
        }),
        form.open && button(t("go_on_editing"), forget)));
  }

  return {
    seen,
    leave: () => {
      job.left = true;
      clearTimeout(timer);
      controller.abort();
    },
    view: () => h("div", { class: "editing", key: "editing" },
      job.done && doneView(),
      form.open ? formView() : h("div", { class: "buttons", key: "open" }, button(t("change_limit"), show, { id: "edit-open", class: "main" }), problem(job.error)),
      job.conflict && conflictView()),
  };
}

const FIELDS = ["messages", "bytes", "mode", "expires", "reason"];
/** What a change had said, to be said again. */
export const restored = (before) => Object.fromEntries(Object.entries(before).filter(([name, value]) => RESTORED.includes(name) && value !== null && value !== ""));
/** ms until a live change ends, by the gateway's clock. */
const untilEnd = ({ expires }) => (expires ? new Date(expires) - Date.now() - state.skew : Infinity);
/** A live change that was before another one, unless it has ended since. */
export const lasting = (override) => (override && untilEnd(override) > 0 ? override : null);
const limitOf = (override) => [override?.messages, override?.bytes].filter(Boolean).join(" · ") || "–";
