// Requests to the admin API. The session's cookie goes along by itself; nothing here has a token, but for the moment of signing in.

import { set, state } from "./store.js";

/** What the API answered instead: status, detail, and errors as {pointer: message}. */
export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body.detail || body.title || `HTTP ${status}`);
    this.status = status;
    this.type = body.type || "";
    this.retryAfter = retryAfter;
    this.requestId = body.request_id || "";
    this.errors = new Map();
    for (const each of body.errors || []) this.errors.set(each.pointer, each.message);
  }
}

/** `reason`: why something is done, for the history, where no body says it. */
export async function ask(method, path, { body, etag, signal, reason } = {}) {
  if (reason) path += `?reason=${encodeURIComponent(reason)}`;
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (etag) headers["If-Match"] = etag;
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "unreachable" });
  }
  const text = await answer.text();
  let found = {};
  try {
    found = text ? JSON.parse(text) : {};
  } catch {
    found = { detail: text.slice(0, 300) };
  }
  if (!answer.ok) {
    if (answer.status === 401 && state.session && !path.startsWith("/v1/session")) set({ session: null, notice: "session_over" });
    throw new Problem(answer.status, found, Number(answer.headers.get("Retry-After")) || null);
  }
  return { body: found, etag: answer.headers.get("ETag") };
}

export const get = async (path, more) => (await ask("GET", path, more)).body;

/** Raises Problem where the gateway has not heard it, and the session lives on. */
export async function endSession() {
  try {
    await ask("DELETE", "/v1/session");
  } catch (error) {
    if (error.status !== 401) throw error; // it was over already
  }
}

/** Runs `task` now and each `seconds` (or what that function says) after it has ended, while the tab is looked at. stop() ends it. */
export function poll(task, seconds) {
  let timer = 0;
  let stopped = false;
  let running = false;
  let wanted = false; // once more, as soon as the one under way has ended
  const controller = new AbortController();
  async function run() {
    clearTimeout(timer);
    if (stopped || document.hidden) return;
    if (running) {
      wanted = true;
      return;
    }
    running = true;
    try {
      await task(controller.signal);
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof Problem)) throw error;
    } finally {
      running = false;
      if (!stopped) timer = setTimeout(run, wanted ? 0 : (typeof seconds === "function" ? seconds() : seconds) * 1000);
      wanted = false;
    }
  }
  const seen = () => !document.hidden && run();
  document.addEventListener("visibilitychange", seen);
  run();
  return {
    now: run,
    stop() {
      stopped = true;
      clearTimeout(timer);
      controller.abort();
      document.removeEventListener("visibilitychange", seen);
    },
  };
}
