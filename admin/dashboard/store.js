// What the page knows, in one place, and who wants to hear of it. Screens change it with set() and are drawn again in the next frame.

const listeners = new Set();
let asked = false;

export const state = {
  session: undefined, // {name, role, expires, gateway, version, page}; null: signed out; undefined: not known yet
  notice: null, // why one was signed out
  link: "connecting", // the stream: connecting, live, lost
  lostAt: null, // ms, by this browser's clock: when the last snapshot came
  lostWhy: "", // what the gateway said instead
  snapshot: null, // the last one of the stream
  ring: [], // the last 60 snapshots' rates, for the small charts
  busyAt: new Map(), // listener -> ms: when its broker last said that it is busy
  over: new Map(), // topic's key -> {since, limit, client, user, ...}: limits that are over now
  boot: null,
  reading: 0, // what the screen reads for the first time and does not have yet
  told: null, // {text, bad}: what became of a change whose screen was left meanwhile
  skew: 0, // ms that the gateway's clock is before this browser's, where that is wrong
  outdated: false, // the gateway has other files of this page than it was made of
};

/** Change the state, and draw once, in the next frame. A hidden tab has none, and so draws nothing. */
export function set(change) {
  Object.assign(state, change);
  redraw();
}

export function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    for (const each of listeners) each();
  });
}

export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const RANKS = { nobody: 0, viewer: 1, operator: 2, admin: 3 };

/** Whether the API would let this user do what needs `role`. */
export const may = (role) => RANKS[state.session?.role ?? "nobody"] >= RANKS[role];

/** What a snapshot says of a topic; undefined: it is not among those with most trouble. */
export const topicIn = (snapshot, item) => snapshot?.topics.find((each) => each.topic === item.topic && each.protocol === item.protocol && each.operation === item.operation);

/** The same of the last snapshot, while that is of now. */
export const liveTopic = (item) => (state.link === "live" ? topicIn(state.snapshot, item) : undefined);

export const topicKey = (item) => `${item.protocol} ${item.operation || "produce"} ${item.topic}`;
