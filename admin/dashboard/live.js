// The stream of the gateway: a snapshot a second and the events of the log. It says when it is lost, comes back by itself and catches up.

import { get, Problem } from "./api.js";
import { set, state, topicKey } from "./store.js";

const SLEEP_AFTER_MS = 60_000; // a tab that nobody looks at for this long lets the stream go
const RETRY_MS = 2_000;
const RING = 60;

let source = null;
let lastId = "";
let retry = 0;
let sleep = 0;

function noteEvent(event) {
  const key = topicKey(event);
  if (event.event === "limit_reached" && event.topic) state.since.set(key, event);
  if (event.event === "limit_recovered" && event.topic) state.since.delete(key);
  state.events.push(event);
  if (state.events.length > 200) state.events.shift();
}

function onSnapshot(message) {
  if (message.lastEventId) lastId = message.lastEventId;
  const snapshot = JSON.parse(message.data);
  if (state.boot && state.boot !== snapshot.boot) {
    state.since.clear();
    state.ring.length = 0;
  }
  const rates = snapshot.rates;
  state.ring.push([rates.received_per_second, rates.forwarded_per_second, rates.refused_per_second]);
  if (state.ring.length > RING) state.ring.shift();
  set({ snapshot, snapshotAt: Date.now(), boot: snapshot.boot, link: "live", lostAt: null });
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
  const after = lastId ? `&after=${encodeURIComponent(lastId)}` : "";
  source = new EventSource(`/v1/stream?topics=50${after}`);
  const mine = source;
  source.addEventListener("snapshot", onSnapshot);
  source.addEventListener("event", (message) => {
    if (message.lastEventId) lastId = message.lastEventId;
    noteEvent(JSON.parse(message.data));
  });
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

/** Which limits are being reached, from the events that the gateway keeps; then the stream. */
export async function start() {
  stop();
  try {
    const found = await get("/v1/events?kind=limit_reached,limit_recovered&limit=500");
    for (const event of found.items) noteEvent(event);
    lastId = found.next || "";
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) return;
  }
  open();
}

export function stop() {
  close();
  lastId = "";
  state.ring.length = 0;
  state.since.clear();
  state.events.length = 0;
  state.snapshot = null;
  state.link = "connecting";
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(sleep);
  if (document.hidden) sleep = setTimeout(close, SLEEP_AFTER_MS);
  else if (!source && state.session) again();
});
