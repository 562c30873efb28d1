// The dashboard: who is signed in, which screen the address names, and the frame around it.

import { ask, get, Problem } from "./api.js";
import { brokers } from "./brokers.js";
import { changes } from "./changes.js";
import { configuration } from "./configuration.js";
import { connections } from "./connections.js";
import { h, patch } from "./dom.js";
import * as live from "./live.js";
import { myTopic } from "./my_topic.js";
import { overview } from "./overview.js";
import { choice } from "./parts.js";
import { quotas } from "./quotas.js";
import { go, here, onMove } from "./router.js";
import { signIn } from "./sign_in.js";
import { redraw, set, state, subscribe } from "./store.js";
import { language, remember, setLanguage, t } from "./text.js";
import { topic } from "./topic.js";
import { topics } from "./topics.js";
import { ago } from "./format.js";

// A screen is a function of its address: it begins to fetch, and returns {title, view(), leave()}.
const SCREENS = { overview, topics, topic, connections, brokers, changes, quotas, configuration, my_topic: myTopic };
const MENU = [["/", "overview"], ["/topics", "topics"], ["/connections", "connections"], ["/brokers", "brokers"], ["/changes", "changes"], ["/quotas", "quotas"], ["/configuration", "configuration"]];

const root = document.getElementById("app");
let address = null;
let screen = null;
let menuOpen = false;

const missing = () => ({ title: () => t("missing_title"), view: () => [h("h1", { id: "title", tabindex: "-1" }, t("missing_title")), h("p", null, h("a", { href: "/" }, t("to_overview")))] });

function show() {
  screen?.leave?.();
  screen = null;
  address = here();
  if (state.session) {
    try {
      screen = (SCREENS[address.screen] || missing)(address.params, address.query);
    } catch (error) {
      screen = { title: () => t("missing_title"), view: () => h("p", { class: "fault" }, String(error.message)) };
    }
  }
}

function move(asked) {
  menuOpen = false;
  show();
  draw();
  if (asked) {
    scrollTo(0, 0);
    document.getElementById("title")?.focus({ preventScroll: true });
  }
}

async function signOut() {
  try {
    await ask("DELETE", "/v1/session");
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
  }
  live.stop();
  set({ session: null, notice: "signed_out" });
  show();
}

function entered() {
  live.start();
  show();
  redraw();
}

const theme = () => document.documentElement.dataset.theme || "auto";

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  remember("sluice.theme", name);
  redraw();
}

function preferences() {
  return h(
    "div",
    { class: "preferences" },
    choice(t("language"), [["en", "EN", "English"], ["zh", "中文", "中文"]], language(), (name) => {
      setLanguage(name);
      draw();
    }),
    choice(t("theme"), [["light", "☀", t("light")], ["auto", "◐", t("auto")], ["dark", "☾", t("dark")]], theme(), setTheme),
  );
}

function frame(content) {
  const at = address.screen === "topic" ? "topics" : address.screen;
  return [
    h("a", { class: "skip", href: "#main", onclick: (event) => {
      event.preventDefault();
      document.getElementById("main").focus();
    } }, t("skip")),
    h(
      "header",
      { class: "top" },
      h("a", { class: "name", href: "/", "aria-label": `sluice: ${state.session.gateway}` }, h("span", { class: "mark", "aria-hidden": "true" }), h("bdi", null, state.session.gateway || "sluice")),
      h("button", { type: "button", class: "menu", "aria-expanded": String(menuOpen), "aria-controls": "nav", onclick: () => {
        menuOpen = !menuOpen;
        redraw();
      } }, t("menu")),
      h("nav", { id: "nav", class: menuOpen ? "open" : "", "aria-label": t("screens") }, MENU.map(([path, name]) => h("a", { href: path, key: name, "aria-current": at === name ? "page" : null }, t(name)))),
      h("div", { class: "who" }, preferences(), h("span", { class: "role", title: t(`role_${state.session.role}`) }, h("bdi", null, state.session.name), h("small", null, state.session.role)), h("button", { type: "button", class: "small", onclick: signOut }, t("sign_out"))),
    ),
    state.link === "lost" && h("p", { class: "lost", role: "status", key: "lost" }, t("link_lost", { since: ago(state.lostAt) })),
    h("main", { id: "main", tabindex: "-1", key: address.screen }, content),
    h("footer", { class: "foot" }, h("span", null, `sluice ${state.session.version}`), h("a", { href: "/v1/openapi.json", target: "_blank", rel: "noopener" }, t("api_description"))),
  ];
}

function draw() {
  if (state.session === undefined) return;
  if (!state.session) {
    if (screen) {
      live.stop();
      show();
    }
    document.title = `${t("sign_in")} · sluice`;
    patch(root, [h("header", { class: "corner", key: "corner" }, preferences()), signIn(entered)]);
    return;
  }
  document.title = `${screen.title()} · ${state.session.gateway || "sluice"}`;
  patch(root, frame(screen.view()));
}

subscribe(draw);
onMove(move);
try {
  set({ session: await get("/v1/session") });
  live.start();
} catch (error) {
  if (!(error instanceof Problem)) throw error;
  set({ session: null, notice: error.status === 0 ? "unreachable" : null });
}
show();
draw();
setInterval(() => !document.hidden && state.session && redraw(), 1000); // countdowns, and "for 4 min"

export { go };
