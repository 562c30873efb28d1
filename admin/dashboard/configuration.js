// The configuration: effective values with their origin, what needs a restart, reloading with a dry run, the log's level, tokens.

import { ask, get } from "./api.js";
import { confirmation } from "./confirm.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { badge, described, field, head, problem, table, say } from "./parts.js";
import { amend } from "./router.js";
import { refresh } from "./screen_data.js";
import { may, redraw } from "./store.js";
import { t } from "./text.js";

const LEVELS = ["debug", "info", "warning", "error", "critical"];
const TIMES = ["10min", "1h", ""];

function originOf(origin) {
  if (origin.kind === "file") return [`${origin.file.split("/").pop()}:${origin.line}`];
  if (origin.kind === "default") return t("origin_default_value");
  return [t(`origin_${origin.kind}`), origin.name && [" ", h("code", null, origin.name)]];
}

export function configuration(_, query) {
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
    const list = (title, items) => items?.length > 0 && [h("p", null, title), h("ul", null, items.map((each, at) => h("li", { key: at }, h("code", null, typeof each === "string" ? each : JSON.stringify(each)))))];
    return h("section", { key: "reload", "aria-labelledby": "reload-title" }, h("h2", { id: "reload-title" }, t("reload")), h("p", { class: "quiet" }, t("reload_text")),
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => reload(true), disabled: found?.busy }, t("reload_try")), found && !found.busy && !found.error && found.dry && h("button", { type: "button", class: "main", onclick: () => reload(false) }, t("reload_now"))),
      found?.error && [problem(found.error), list("", found.faults)],
      found && !found.busy && !found.error && h("div", { class: "notice good", role: "status" }, h("p", null, found.dry ? t("reload_would") : t("reloaded")), list(t("takes_effect"), found.in_force), list(t("needs_restart"), found.needs_restart), !found.in_force?.length && !found.needs_restart?.length && h("p", null, t("nothing_changes"))));
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
    return h("section", { key: "level", "aria-labelledby": "level-title" }, h("h2", { id: "level-title" }, t("log_level")),
      now && h("p", null, badge(now.level, now.live ? "live" : ""), " ", now.live ? (now.until ? t("level_until", { at: f.moment(now.until), level: now.configured }) : t("level_restart", { level: now.configured })) : t("as_configured")),
      may("admin") && h("form", { class: "tools", onsubmit: async (event) => {
        event.preventDefault();
        await setLevel("PUT", form.for ? { level: form.level, for: form.for } : { level: form.level });
      } },
      h("label", { for: "level" }, t("level")), h("select", { id: "level", onchange: (event) => (form.level = event.target.value) }, LEVELS.map((each) => h("option", { key: each, value: each, selected: each === form.level }, each))),
      h("label", { for: "level-for" }, t("for_how_long")), h("select", { id: "level-for", onchange: (event) => (form.for = event.target.value) }, TIMES.map((each) => h("option", { key: each, value: each, selected: each === form.for }, each ? t(`time_${each}`) : t("until_restart")))),
      h("button", { type: "submit" }, t("set_level")),
      now?.live && h("button", { type: "button", onclick: () => setLevel("DELETE") }, t("level_back"))));
  }

  function makeToken() {
    data.made = null;
    const error = (found, name) => found?.errors?.get(`/${name}`);
    question.ask({ title: t("token_new"), action: t("token_make"), fields: (found) => h("div", { class: "fields" },
      field({ id: "token-name", label: t("client_name"), error: error(found, "name"), children: h("input", { id: "token-name", value: form.name, autocomplete: "off", oninput: (event) => (form.name = event.target.value), ...described("token-name", false, error(found, "name")) }) }),
      field({ id: "token-role", label: t("role"), error: error(found, "role"), children: h("select", { id: "token-role", onchange: (event) => (form.role = event.target.value) }, ["viewer", "operator", "admin"].map((each) => h("option", { key: each, value: each, selected: form.role === each }, t(`role_${each}`)))) }),
      field({ id: "token-expires", label: t("token_expires"), hint: t("token_expires_hint"), error: error(found, "expires"), children: h("input", { id: "token-expires", value: form.expires, autocomplete: "off", oninput: (event) => (form.expires = event.target.value), ...described("token-expires", true, error(found, "expires")) }) })),
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
    return h("section", { key: "tokens", "aria-labelledby": "tokens-title" }, h("div", { class: "bar-head" }, h("h2", { id: "tokens-title" }, t("tokens")), h("button", { type: "button", class: "small", onclick: makeToken }, t("token_new"))),
      data.made && h("div", { class: "notice good", role: "status" }, h("p", null, t("token_made", { name: data.made.name })), h("pre", null, h("code", null, data.made.token)), h("button", { type: "button", onclick: () => {
        data.made = null;
        redraw();
      } }, t("token_hide"))),
      data.tokens && table(t("tokens"), [{ name: "name", title: t("client_name") }, { name: "role", title: t("role") }, { name: "origin", title: t("origin") }, { name: "ends", title: t("ends"), number: true }, { name: "used", title: t("last_used"), number: true }, { name: "revoke", title: "", spoken: t("revoke") }], data.tokens.map((each) => ({ key: each.name, cells: {
        name: h("bdi", null, each.name), role: each.role, origin: t(`token_origin_${each.origin === "api" ? "live" : each.origin}`), ends: each.expires_at ? f.moment(each.expires_at) : t("no_end"), used: f.moment(each.last_used_at),
        revoke: each.origin === "api" && h("button", { type: "button", class: "small danger", "aria-label": `${t("revoke")}: ${each.name}`, onclick: () => question.ask({ title: t("revoke_title", { name: each.name }), text: t("revoke_text"), action: t("revoke"), danger: true, run: async (reason) => {
          await ask("DELETE", `/v1/tokens/${encodeURIComponent(each.name)}${reason ? `?reason=${encodeURIComponent(reason)}` : ""}`);
          lists.now();
        } }) }, t("revoke")),
      } }))));
  }

  function valuesView() {
    const found = data.values.filter((each) => (data.all || data.q || each.origin.kind !== "default") && `${each.path} ${each.value}`.toLowerCase().includes(data.q.toLowerCase()));
    return h("section", { key: "values", "aria-labelledby": "values-title" }, h("h2", { id: "values-title" }, t("effective_values")), h("div", { class: "tools" }, h("label", { for: "search" }, t("search")), h("input", { id: "search", type: "search", value: data.q, autocomplete: "off", oninput: (event) => {
      data.q = event.target.value;
      amend({ q: data.q });
      redraw();
    } }), h("label", null, h("input", { type: "checkbox", checked: data.all, onchange: (event) => {
      data.all = event.target.checked;
      redraw();
    } }), ` ${t("defaults_too")}`)),
    table(t("effective_values"), [{ name: "path", title: t("setting") }, { name: "value", title: t("value"), wide: true }, { name: "origin", title: t("origin") }], found.map((each) => ({ key: each.path, cells: { path: h("code", null, each.path), value: h("code", null, h("bdi", null, typeof each.value === "string" ? each.value : JSON.stringify(each.value))), origin: originOf(each.origin) } })), { empty: t("none_found_settings") }));
  }

  return {
    title: () => t("configuration"),
    leave: () => lists.stop(),
    view: () => [
      head(t("configuration"), { api: "/v1/config?origins=1" }),
      problem(data.fault || data.error),
      data.status && h("p", { class: "health", key: "status" }, badge(data.status.config_last_reload_successful ? t("last_reload_good") : t("last_reload_bad"), data.status.config_last_reload_successful ? "good" : "bad"), h("span", null, `sluice ${data.status.version} (${data.status.build})`), h("span", null, t("up_for", { time: f.duration(data.status.uptime_seconds) }))),
      data.status?.needs_restart?.length > 0 && h("div", { class: "notice", key: "restart" }, h("p", null, t("needs_restart")), h("ul", null, data.status.needs_restart.map((each, at) => h("li", { key: at }, h("code", null, String(each)))))),
      may("admin") && reloadView(),
      levelView(),
      valuesView(),
      tokensView(),
      h("section", { key: "bundle" }, h("h2", null, t("support_bundle")), h("p", null, t("support_bundle_text")), h("pre", null, h("code", null, "sluice support-bundle"))),
      question.view(),
    ],
  };
}
