// The dashboard: who is signed in, which screen the address names, and the frame around it.

import { ask, endSession, get, Problem } from "./api.js";
import { h, patch } from "./dom.js";
import { duration } from "./format.js";
import * as live from "./live.js";
import { button, choice, given, problem, quiet, say } from "./parts.js";
import { here, onMove } from "./router.js";
import { signIn } from "./sign_in.js";
import { redraw, set, state, subscribe } from "./store.js";
import { language, remember, setLanguage, t } from "./text.js";

// A screen is a function of its address: it begins to fetch, and returns {title, view(), leave()}.
const MODULES = {
  overview: () => import("./overview.js"),
  topics: () => import("./topics.js"),
  topic: () => import("./topic.js"),
  connections: () => import("./connections.js"),
  brokers: () => import("./brokers.js"),
  changes: () => import("./changes.js"),
  quotas: () => import("./quotas.js"),
  configuration: () => import("./configuration.js"),
  my_topic: () => import("./my_topic.js"),
};
const REST_AFTER_MS = 3000; // until the other screens' modules are fetched: for when the gateway is away
const screens = {};
const MENU = ["overview", "topics", "connections", "brokers", "changes", "quotas", "configuration"];

const root = document.getElementById("app");
let address = here();
let screen = null;
let menuOpen = false;

const plain = (title, ...content) => ({ title: () => t(title), view: () => [h("h1", { id: "title", tabindex: "-1" }, t(title)), content.map((each) => each())] });
const missing = () => plain("missing_title", () => h("p", null, h("a", { href: "/" }, t("to_overview"))));

async function fetched(name) {
  if (name in MODULES) screens[name] ??= (await MODULES[name]()).default;
  return screens[name] || missing;
}

function enter(found) {
  try {
    screen = found(address.params, address.query);
  } catch (error) {
    screen = plain("missing_title", () => problem(error));
  }
}

/** The screen that the address names; until its module is there, its title. */
async function show() {
  screen?.leave?.();
  screen = null;
  const mine = (address = here());
  if (!state.session) return;
  if (screens[mine.screen] || !(mine.screen in MODULES)) return enter(screens[mine.screen] || missing);
  screen = plain(mine.screen, () => quiet(t("loading")));
  const failed = () => () => plain(mine.screen, () => problem({ status: 0 }), () => button(t("again"), () => location.reload()));
  const found = await fetched(mine.screen).catch(failed);
  if (mine === address && state.session) enter(found);
  redraw();
}

async function move(asked) {
  menuOpen = false;
  const shown = show();
  draw();
  if (!asked) return;
  const focus = () => document.getElementById("title")?.focus({ preventScroll: true });
  scrollTo(0, 0);
  focus();
  await shown;
  draw();
  if (document.activeElement === document.body) focus();
}

async function signOut() {
  try {
    await endSession();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return set({ told: { text: t("not_signed_out", { error: error.status ? error.message : t("unreachable") }), bad: true } });
  }
  live.stop();
  set({ session: null, notice: "signed_out" });
  show();
}

let madeOf = null; // the revision of this page's files

/** A tab at its form, when another one may have signed in. */
async function look() {
  if (state.session !== null) return;
  try {
    set({ session: await get("/v1/session"), notice: null });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return; // not yet; what is typed stays
  }
  entered();
}

const tabs = new BroadcastChannel("sluice"); // one tells the others that it has signed in
tabs.onmessage = look;
document.addEventListener("visibilitychange", () => !document.hidden && look());

function entered() {
  if (madeOf && madeOf !== state.session.page) return location.reload(); // an upgrade ended the session
  madeOf = state.session.page;
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
      setLanguage(name).then(draw, () => say(t("unreachable")));
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
      h("a", { class: "name", href: "/", "aria-label": `sluice: ${state.session.gateway}` }, h("span", { class: "logo", "aria-hidden": "true" }), given(state.session.gateway || "sluice")),
      button(t("menu"), () => {
        menuOpen = !menuOpen;
        redraw();
      }, { class: "menu", "aria-expanded": String(menuOpen), "aria-controls": "nav" }),
      h("nav", { id: "nav", class: menuOpen ? "open" : "", "aria-label": t("screens") }, MENU.map((name) => h("a", { href: name === "overview" ? "/" : `/${name}`, key: name, "aria-current": at === name ? "page" : null }, t(name)))),
      h("div", { class: "who" }, preferences(), h("span", { class: "role", title: t(`role_${state.session.role}`) }, given(state.session.name), h("small", null, state.session.role)), button(t("sign_out"), signOut, { class: "small" })),
    ),
    state.link === "lost" && h("p", { class: "lost", role: "status", key: "lost" }, t("link_lost", { since: duration((Date.now() - state.lostAt) / 1000) }), " ", state.lostWhy),
    state.told && h("p", { class: state.told.bad ? "lost told" : "told notice good", role: "status", key: "told" }, state.told.text, " ", h("a", { href: "/changes" }, t("see_history")), " ", button(t("close"), () => set({ told: null }), { class: "small" })),
    state.outdated && h("p", { class: "lost", role: "status", key: "outdated" }, t("outdated"), " ", button(t("reload_page"), () => location.reload(), { class: "small" })),
    h("main", { id: "main", tabindex: "-1", key: address.screen, "aria-busy": state.reading ? "true" : null }, content),
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
    patch(root, [h("header", { class: "corner", key: "corner" }, preferences()), signIn(() => {
      tabs.postMessage("signed in");
      entered();
    })]);
    return;
  }
  if (!screen) return; // signed in to another version: the page is about to be loaded again
  document.title = `${screen.title()} · ${state.session.gateway || "sluice"}`;
  patch(root, frame(screen.view()));
}

subscribe(draw);
onMove(move);
fetched(address.screen).catch(() => {}); // while the session is asked for
const code = location.hash.split("#sign-in=")[1]; // of the terminal's link, good once
if (code) {
  history.replaceState(null, "", location.pathname);
  await ask("POST", "/v1/session", { body: { code } }).catch(() => {});
}
try {
  set({ session: await get("/v1/session") });
  madeOf = state.session.page;
  live.start();
} catch (error) {
  if (!(error instanceof Problem)) throw error;
  set({ session: null, notice: error.status === 0 ? "unreachable" : code ? "link_over" : null });
}
show();
redraw();
setInterval(() => !document.hidden && state.session && redraw(), 1000); // countdowns, and "for 4 min"
setTimeout(() => Object.keys(MODULES).reduce((before, name) => before.then(() => fetched(name)), Promise.resolve()).catch(() => {}), REST_AFTER_MS);
