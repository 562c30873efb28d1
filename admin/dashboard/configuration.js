// The configuration: effective values with their origin, reloading, the log's level, tokens.

import { ask, get } from "./api.js";
import { confirmation } from "./confirm.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { badge, button, buttons, csvOf, field, given, head, input, problem, quiet, say, search, section, select, table } from "./parts.js";
import { refresh } from "./screen_data.js";
import { may, redraw } from "./store.js";
import { t } from "./text.js";

const LEVELS = ["debug", "info", "warning", "error", "critical"];
const TIMES = ["10min", "1h", ""];

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function originOf(origin) {
  if (origin.kind === "file") return [`${origin.file.split("/").pop()}:${origin.line}`];
  return [t(`origin_${origin.kind}`), origin.name && [" ", h("code", null, origin.name)]];
}

export default function configuration(_, query) {
  const data = { values: [], status: null, level: null, tokens: null, error: null, q: query.get("q") || "", all: false, reload: null, made: null };
  const form = { level: "debug", for: "10min", name: "", role: "viewer", expires: "90d" };
  const question = confirmation();
  const lists = refresh(data, async (signal) => {
    data.values = (await get("/v1/config?origins=1", { signal })).values;
    data.status = await get("/v1/status", { signal });
    data.level = await get("/v1/log/level", { signal });
    if (may("admin")) data.tokens = (await get("/v1/tokens?limit=500", { signal })).items;
  }, 5);

  async function reload(dry) {
    data.reload = { busy: true };
    redraw();
    try {
      data.reload = { ...(await ask("POST", `/v1/config:reload${dry ? "?dry_run=1" : ""}`)).body, dry };
      if (!dry) say(t("reloaded"));
      lists.now();
    } catch (error) {
      data.reload = { error, faults: [...error.errors.values()] };
    }
    redraw();
  }

  function reloadView() {
    const found = data.reload;
    const done = found && !found.busy && !found.error;
    const list = (title, items) => items?.length > 0 && [h("p", null, title), h("ul", null, items.map((each, at) => h("li", { key: at }, h("code", null, typeof each === "string" ? each : JSON.stringify(each)))))];
    return section("reload", t("reload"), null, quiet(t("reload_text")),
      buttons(button(t("reload_try"), () => reload(true), { disabled: found?.busy }), done && found.dry && button(t("reload_now"), () => reload(false), { class: "main" })),
      found?.error && [problem(found.error), list("", found.faults)],
      done && h("div", { class: "notice good", role: "status" }, h("p", null, found.dry ? t("reload_would") : t("reloaded")), list(t("takes_effect"), found.in_force), list(t("needs_restart"), found.needs_restart), !found.in_force?.length && !found.needs_restart?.length && h("p", null, t("nothing_changes"))));
  }

  async function setLevel(method, body) {
    data.fault = null;
    try {
      data.level = (await ask(method, "/v1/log/level", { body })).body;
    } catch (error) {
      data.fault = error;
    }
    redraw();
  }

  function levelView() {
    const now = data.level;
    return section("log", t("log_level"), null,
      now && h("p", null, badge(now.level, now.live ? "live" : ""), " ", now.live ? (now.until ? t("level_until", { at: f.moment(now.until), level: now.configured }) : t("level_restart", { level: now.configured })) : t("as_configured")),
      may("admin") && h("form", { class: "tools", onsubmit: async (event) => {
        event.preventDefault();
        await setLevel("PUT", form.for ? { level: form.level, for: form.for } : { level: form.level });
      } },
      h("label", { for: "level" }, t("level")), select(form, "level", LEVELS.map((each) => [each, each]))({ id: "level" }),
      h("label", { for: "level-for" }, t("for_how_long")), select(form, "for", TIMES.map((each) => [each, each ? t(`time_${each}`) : t("until_restart")]))({ id: "level-for" }),
      button(t("set_level"), null, { type: "submit" }),
      now?.live && button(t("level_back"), () => setLevel("DELETE"))));
  }

  function makeToken() {
    data.made = null;
    const error = (found, name) => found?.errors?.get(`/${name}`);
    question.ask({ title: t("token_new"), action: t("token_make"), fields: (found) => h("div", { class: "fields" },
      field("token-name", t("client_name"), input(form, "name"), { error: error(found, "name") }),
      field("token-role", t("role"), select(form, "role", ["viewer", "operator", "admin"].map((each) => [each, t(`role_${each}`)])), { error: error(found, "role") }),
      field("token-expires", t("token_expires"), input(form, "expires"), { hint: t("token_expires_hint"), error: error(found, "expires") })),
    run: async (reason) => {
      const body = { name: form.name.trim(), role: form.role };
      if (form.expires.trim()) body.expires = form.expires.trim();
      if (reason) body.reason = reason;
      data.made = (await ask("POST", "/v1/tokens", { body })).body;
      lists.now();
    } });
  }

  function tokensView() {
    if (!may("admin")) return null;
    return section("tokens", t("tokens"), button(t("token_new"), makeToken, { class: "small" }),
      data.made && h("div", { class: "notice good", role: "status" }, h("p", null, t("token_made", { name: data.made.name })), h("pre", null, h("code", null, data.made.token)), button(t("token_hide"), () => {
        data.made = null;
        redraw();
      })),
      data.tokens && table(t("tokens"), "client_name role origin ends:number last_used:number revoke:spoken", data.tokens.map((each) => ({ key: each.name, cells: {
        client_name: given(each.name), role: each.role, origin: t(`token_origin_${each.origin === "api" ? "live" : each.origin}`), ends: each.expires_at ? f.moment(each.expires_at) : t("no_end"), last_used: f.moment(each.last_used_at),
        revoke: each.origin === "api" && button(t("revoke"), () => question.ask({ title: t("revoke_title", { name: each.name }), text: t("revoke_text"), action: t("revoke"), danger: true, run: async (reason) => {
          await ask("DELETE", `/v1/tokens/${encodeURIComponent(each.name)}`, { reason });
          lists.now();
        } }), { class: "small danger", "aria-label": `${t("revoke")}: ${each.name}` }),
      } }))));
  }

  function valuesView() {
    const found = data.values.filter((each) => (data.all || data.q || each.origin.kind !== "default") && `${each.path} ${each.value}`.toLowerCase().includes(data.q.toLowerCase()));
    return section("values", t("effective_values"), null, h("div", { class: "tools" }, search(data, null), h("label", null, h("input", { type: "checkbox", checked: data.all, onchange: (event) => {
      data.all = event.target.checked;
      redraw();
    } }), ` ${t("defaults_too")}`)),
    table(t("effective_values"), "setting value:wide origin", found.map((each) => ({ key: each.path, cells: { setting: h("code", null, each.path), value: h("code", null, given(text(each.value))), origin: originOf(each.origin) } })), { empty: t("none_found_settings") }));
  }

  return {
    title: () => t("configuration"),
    leave: lists.stop,
    view: () => [
      head(t("configuration"), "/v1/config?origins=1", csvOf("configuration", () => [["setting", "value", "origin", "place"], ...data.values.map(({ path, value, origin }) => [path, text(value), origin.kind, origin.name || (origin.file && `${origin.file}:${origin.line}`)])])),
      problem(data.fault || data.error),
      !data.status && !data.error && quiet(t("loading"), "wait"),
      data.status && h("p", { class: "health", key: "status" }, badge(data.status.config_last_reload_successful ? t("last_reload_good") : t("last_reload_bad"), data.status.config_last_reload_successful ? "good" : "bad"), h("span", null, `sluice ${data.status.version} (${data.status.build})`), h("span", null, t("up_for", { time: f.duration(data.status.uptime_seconds) }))),
      data.status?.needs_restart?.length > 0 && h("div", { class: "notice", key: "restart" }, h("p", null, t("needs_restart")), h("ul", null, data.status.needs_restart.map((each, at) => h("li", { key: at }, h("code", null, String(each)))))),
      may("admin") && reloadView(),
      levelView(),
      valuesView(),
      tokensView(),
      section("bundle", t("support_bundle"), null, h("p", null, t("support_bundle_text")), h("pre", null, h("code", null, `sluice support-bundle --admin ${location.origin}`))),
      question.view(),
    ],
  };
}
