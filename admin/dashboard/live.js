// The stream of the gateway: a snapshot a second. It says when it is lost, comes back by itself and catches up.

import { get, Problem } from "./api.js";
import { set, state, topicKey } from "./store.js";

const SLEEP_AFTER_MS = 60_000; // a tab that nobody looks at for this long lets the stream go
const RETRY_MS = 2_000;
const RING = 60;

let source = null;
let retry = 0;
let sleep = 0;

function onSnapshot(message) {
  const snapshot = JSON.parse(message.data);
  if (state.boot && state.boot !== snapshot.boot) state.ring.length = 0;
  state.over = new Map(snapshot.over.filter((each) => each.topic).map((each) => [topicKey(each), { ...each, since: new Date(each.since * 1000).toISOString() }]));
  for (const each of state.boot === snapshot.boot && state.snapshot ? snapshot.listeners : []) {
    const before = state.snapshot.listeners.find((one) => one.name === each.name)?.broker_busy || {};
    if (Object.entries(each.broker_busy || {}).some(([code, count]) => count > (before[code] || 0))) state.busyAt.set(each.name, Date.now());
  }
  const rates = snapshot.rates;
  state.ring.push([rates.received_per_second, rates.forwarded_per_second, rates.refused_per_second]);
  if (state.ring.length > RING) state.ring.shift();
  set({ snapshot, boot: snapshot.boot, link: "live", lostAt: null });
}

function lost() {
  if (state.link !== "lost") set({ link: "lost", lostAt: Date.now() });
}

async function again() {
  clearTimeout(retry);
  if (!state.session) return;
  try {
    await get("/v1/session"); // the stream says nothing of why: this does
    open();
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return set({ session: null, notice: "session_over" });
    retry = setTimeout(again, RETRY_MS);
  }
}

function open() {
  close();
  source = new EventSource("/v1/stream?topics=50&events=0"); // each snapshot is whole: after a pause the next one has all there is
  const mine = source;
  source.addEventListener("snapshot", onSnapshot);
  source.addEventListener("end", () => {
    lost();
    mine.close();
    retry = setTimeout(again, RETRY_MS / 4);
  });
  source.addEventListener("error", () => {
    if (mine !== source) return;
    lost();
    mine.close();
    clearTimeout(retry);
    retry = setTimeout(again, RETRY_MS);
  });
}

function close() {
  clearTimeout(retry);
  if (source) source.close();
  source = null;
}

export function start() {
  stop();
  open();
}

export function stop() {
  close();
  state.ring.length = 0;
  state.over = new Map();
  state.busyAt = new Map();
  state.snapshot = null;
  state.link = "connecting";
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(sleep);
  if (document.hidden) sleep = setTimeout(close, SLEEP_AFTER_MS);
  else if (!source && state.session) again();
});
