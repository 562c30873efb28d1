// The stream of the gateway: a snapshot a second. It says when it is lost, comes back by itself and catches up.

import { get, Problem } from "./api.js";
import { set, state, topicKey } from "./store.js";

const SLEEP_AFTER_MS = 60_000; // a tab that nobody looks at for this long lets the stream go
const RETRY_MS = 2_000;
const RING = 60;
const STREAM = "/dashboard/stream.js";

let worker = null; // of all tabs of this browser: stream.js
let listening = false;
let retry = 0;
let sleep = 0;

function onSnapshot(text) {
  const snapshot = JSON.parse(text);
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

const HEARD = {
  snapshot: onSnapshot,
  end() {
    lost();
    retry = setTimeout(again, RETRY_MS / 4);
  },
  error() {
    lost();
    clearTimeout(retry);
    retry = setTimeout(again, RETRY_MS);
  },
};

function open() {
  close();
  listening = true;
  if (!worker) {
    worker = globalThis.SharedWorker ? new SharedWorker(STREAM).port : new Worker(STREAM);
    worker.onmessage = ({ data: { what, data } }) => listening && HEARD[what](data);
  }
  worker.postMessage("open");
}

function close() {
  clearTimeout(retry);
  listening = false;
  worker?.postMessage("close");
}

export function start() {
  stop();
  open();
  if (document.hidden) sleep = setTimeout(close, SLEEP_AFTER_MS); // a tab that was opened in the background
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
  else if (!listening && state.session) again();
});
addEventListener("pagehide", () => listening && close());
addEventListener("pageshow", ({ persisted }) => persisted && state.session && again());
