// The stream of the gateway: a snapshot a second. It says when it is lost, comes back by itself and catches up.

import { get, Problem } from "./api.js";
import { set, state, topicKey } from "./store.js";

const SLEEP_AFTER_MS = 60_000; // a tab that nobody looks at for this long lets the stream go
const RETRY_MS = 2_000;
const SILENCE_MS = 10_000; // without a snapshot, of which one comes each second: the worker did not load, has died or has lost its stream
const RING = 60;
const STREAM = "/dashboard/stream.js";

let worker = null; // of all tabs of this browser that have the same version of the gateway: stream.js
let version = null; // of this worker
let listening = false; // or about to
let heardAt = null; // ms; the last snapshot
let retry = 0;
let silence = 0;
let sleep = 0;

function onSnapshot(text) {
  listen();
  heardAt = Date.now();
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
  set({ snapshot, boot: snapshot.boot, link: "live", lostAt: null, lostWhy: "" });
}

function lost() {
  if (state.link !== "lost") set({ link: "lost", lostAt: heardAt ?? Date.now() });
}

async function again() {
  clearTimeout(retry);
  listening = true;
  if (!state.session) return;
  try {
    const { name, role, page } = await get("/v1/session"); // the stream says nothing of why: this does
    if (name !== state.session.name || role !== state.session.role) return location.reload(); // another tab has signed in as somebody else
    if (page !== state.session.page) set({ outdated: true }); // after an upgrade; another tab has signed in
    if (listening) open();
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return set({ session: null, notice: "session_over" });
    if (listening) retryIn(RETRY_MS);
  }
}

/** An event source does not say why the gateway refused it, as where a token has all its streams: a request does. */
async function askWhy() {
  const asking = new AbortController();
  setTimeout(() => asking.abort(), RETRY_MS); // it was not refused
  try {
    await get("/v1/stream?topics=1&events=0", { signal: asking.signal });
  } catch (error) {
    if (error.status) set({ lostWhy: error.message });
  }
}

function retryIn(milliseconds) {
  clearTimeout(silence);
  clearTimeout(retry);
  lost();
  retry = setTimeout(again, milliseconds);
}

function listen() {
  clearTimeout(silence);
  silence = setTimeout(giveUp, SILENCE_MS);
}

/** The next try is with another worker. */
function giveUp() {
  leave();
  retryIn(RETRY_MS);
}

const HEARD = {
  snapshot: onSnapshot,
  end: () => retryIn(RETRY_MS / 4),
  error: () => {
    retryIn(RETRY_MS);
    askWhy();
  },
};

function leave() {
  worker?.postMessage("close");
  worker?.terminate?.(); // one that is this tab's own
  worker = null;
}

function join() {
  version = state.session.version;
  const made = globalThis.SharedWorker ? new SharedWorker(STREAM, { name: `sluice ${version}` }) : new Worker(STREAM);
  const mine = (worker = made.port || made);
  mine.onmessage = ({ data: { what, data } }) => listening && mine === worker && HEARD[what](data);
  made.onerror = () => listening && mine === worker && giveUp();
}

function open() {
  close();
  listening = true;
  if (version !== state.session.version) leave();
  if (!worker) join();
  worker.postMessage("open");
  listen();
}

function close() {
  clearTimeout(retry);
  clearTimeout(silence);
  listening = false;
  worker?.postMessage("close");
}

/** What is known grows old from now on: it is not taken for live. */
function rest() {
  close();
  set({ link: "connecting" });
}

export function start() {
  stop();
  open();
  if (document.hidden) sleep = setTimeout(rest, SLEEP_AFTER_MS); // a tab that was opened in the background
}

export function stop() {
  close();
  heardAt = null;
  state.ring.length = 0;
  state.over = new Map();
  state.busyAt = new Map();
  state.snapshot = null;
  state.link = "connecting";
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(sleep);
  if (document.hidden) sleep = setTimeout(rest, SLEEP_AFTER_MS);
  else if (!listening && state.session) again();
});
addEventListener("pagehide", () => listening && close());
addEventListener("pageshow", ({ persisted }) => persisted && state.session && again());
