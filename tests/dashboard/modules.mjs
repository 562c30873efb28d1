// The page's modules in node, without a browser: the document is a stand-in, and the gateway a function of each case.

import { argv } from "node:process";

const [, , folder, name] = argv;
const nothing = () => {};

Object.assign(globalThis, {
  document: { documentElement: { lang: "en", dataset: {} }, hidden: false, addEventListener: nothing, removeEventListener: nothing, getElementById: () => ({ focus: nothing, style: {} }), createElement: () => ({ style: {} }), head: { append: nothing }, activeElement: null },
  location: { pathname: "/", search: "", origin: "http://gateway", href: "http://gateway/" },
  history: { replaceState: nothing, pushState: nothing },
  addEventListener: nothing,
  requestAnimationFrame: nothing,
  localStorage: { setItem: nothing },
  matchMedia: () => ({ matches: false }),
  ResizeObserver: class { observe() {} disconnect() {} },
});
Object.defineProperty(globalThis, "navigator", { value: {}, writable: true }); // later nodes have one of their own

const load = (module) => import(`${folder}/${module}.js`);
const turn = () => new Promise((resolve) => setTimeout(resolve, 5));
const cases = {};
const test = (title, run) => (cases[title] = run);

function check(held, what) {
  if (!held) throw new Error(what);
}

const same = (found, wanted, what = "found") => check(JSON.stringify(found) === JSON.stringify(wanted), `${what}: ${JSON.stringify(found)} is not ${JSON.stringify(wanted)}`);

/** Waits until `read()` gives something true; the test that started this ends it where that never comes. */
async function until(read) {
  for (;;) {
    const found = read();
    if (found) return found;
    await turn();
  }
}

/** `answer({method, path, query, body, etag})` is the gateway: {status, body, etag}. What was asked, in its order. */
function gateway(answer) {
  const asked = [];
  globalThis.fetch = async (address, { method, body, headers }) => {
    const [path, query = ""] = address.split("?");
    const one = { method, path, query, body: body && JSON.parse(body), etag: headers["If-Match"] };
    asked.push(one);
    const { status = 200, body: said = {}, etag = null } = (await answer(one)) || {};
    return { ok: status < 400, status, text: async () => JSON.stringify(said), headers: { get: (header) => (header === "ETag" ? etag : null) } };
  };
  return asked;
}

/** The elements of a view that are asked for. */
function find(nodes, wanted, into = []) {
  for (const node of [nodes].flat(Infinity)) {
    if (!node?.tag) continue;
    if (wanted(node)) into.push(node);
    find(node.children, wanted, into);
  }
  return into;
}

const text = (nodes) => [nodes].flat(Infinity).map((node) => (node?.tag ? text(node.children) : (node?.text ?? (typeof node === "string" ? node : "")))).join("");
const byId = (view, id) => find(view, (node) => node.props.id === id)[0];
const byText = (view, words) => find(view, (node) => node.tag === "button" && text(node).startsWith(words))[0];

async function signedIn(role = "operator") {
  const store = await load("store");
  store.state.session = { name: "me", role, gateway: "g", version: "1", page: "p" };
  return store.state;
}

// ---- the session and the stream ------------------------------------------------------------------------------------------

test("who_could_not_sign_out_is_told", async () => {
  const { endSession } = await load("api");
  for (const [status, raised] of [[204, false], [401, false], [429, true], [503, true]]) {
    gateway(() => ({ status }));
    same(await endSession().then(() => false, () => true), raised, status);
  }
});

let port; // of the worker: there is one

/** live.js with a stream that the case plays: heard("snapshot", text). `session`: what the gateway says of it now. */
async function streaming(session) {
  const state = await signedIn();
  globalThis.SharedWorker = class { port = (port = { postMessage: nothing }); };
  gateway((asked) => session(asked));
  const live = await load("live");
  live.start();
  return { state, live, heard: (what, data) => port.onmessage({ data: { what, data: data && JSON.stringify(data) } }) };
}

test("a_tab_whose_session_is_somebody_elses_is_loaded_anew", async () => {
  let loaded = 0;
  location.reload = () => (loaded += 1);
  for (const [more, wanted] of [[{}, 0], [{ role: "viewer" }, 1], [{ name: "bob" }, 2]]) {
    let asked = 0;
    const { heard } = await streaming(() => ({ body: { name: "me", role: "operator", page: "p", version: "1", ...more, asked: (asked += 1) } }));
    heard("end");
    await until(() => asked);
    await turn();
    same(loaded, wanted, JSON.stringify(more));
  }
});

test("a_stream_that_the_gateway_refuses_says_why", async () => {
  const detail = "the token wall has 32 streams already, its most; end one, or use another token";
  const { heard, state } = await streaming(({ path }) => (path === "/v1/stream" ? { status: 503, body: { detail } } : { body: { name: "me", role: "operator", page: "p", version: "1" } }));
  heard("error");
  await until(() => state.lostWhy);
  same([state.link, state.lostWhy], ["lost", detail]);
  heard("snapshot", snapshotOf({}));
  same([state.link, state.lostWhy], ["live", ""]);
});

test("what_a_tab_knew_before_it_slept_is_not_live", async () => {
  const heard = {};
  document.addEventListener = (event, listener) => (heard[event] = listener);
  const timers = [];
  const later = globalThis.setTimeout;
  globalThis.setTimeout = (run, after) => (after === 60_000 ? timers.push(run) : later(run, after));
  let away = false;
  const tab = await streaming(() => {
    if (away) throw new TypeError("network");
    return { body: { name: "me", role: "operator", page: "p", version: "1" } };
  });
  const { liveTopic } = await load("store");
  tab.heard("snapshot", snapshotOf({ topics: [topicOf()] }));
  same(liveTopic(topicOf())?.received_per_second, 5000, "while it is looked at");
  document.hidden = true;
  heard.visibilitychange();
  timers.pop()();
  const slept = Date.now();
  const now = Date.now;
  Date.now = () => now() + 9 * 3_600_000;
  document.hidden = false;
  away = true;
  same(liveTopic(topicOf()), undefined, "nine hours later");
  heard.visibilitychange();
  await until(() => tab.state.link === "lost");
  check(tab.state.lostAt <= slept, "lost since the last snapshot");
});

test("a_chart_does_not_stand_still_after_the_clock_was_set_back", async () => {
  const { longer } = await load("screen_data");
  const series = (start, received) => ({ known: true, step: 1, start, end: received.length ? start + received.length - 1 : 0, points: { received }, marks: [], missing: [] });
  let now = series(1000, [5, 5, 5]);
  for (let at = 0; at < 3; at += 1) now = longer(now, series(0, []), 900);
  same(now.points.received, [5, 5, 5], "a gateway that has begun anew");
  same(longer(now, series(0, []), 900), null, "all is read anew");
  now = longer(longer(now, series(1003, [6]), 900), series(0, []), 900);
  same([now.end, now.points.received], [1003, [5, 5, 5, 6]], "joined again");
});

test("a_topics_figures_are_asked_for_by_just_its_name", async () => {
  const { readTopic } = await load("screen_data");
  const asked = gateway(({ path, query }) => {
    const items = new URLSearchParams(query).get("topic") === "or&ders" ? ["produce", "consume"].map((operation) => ({ topic: "or&ders", operation })) : [];
    return { body: { items: path === "/v1/topics" ? items : [], next: "more" } };
  });
  const data = {};
  await readTopic({ protocol: "amqp", topic: "or&ders", operation: "consume" }, data);
  same([data.now, data.near], [{ topic: "or&ders", operation: "consume" }, undefined], "the search for a name ends before it, where 500 others have it in theirs");
  await readTopic({ protocol: "amqp", topic: "order", operation: "produce" }, data);
  same([data.now, asked.filter(({ path }) => path === "/v1/topics").length], [null, 3], "one that was never seen, and those near to it");
});

// ---- numbers -------------------------------------------------------------------------------------------------------------

test("numbers_are_not_rounded_to_what_they_are_not", async () => {
  const { levelText, milliseconds, percent, readable } = await load("format");
  same(["12100/s", "12400/s", "1499999/s", "9999/s", "500/s", "12345.678/s", "106255B/s"].map(readable), ["12,100/s", "12,400/s", "1,499,999/s", "9,999/s", "500/s", "12k/s", "104 KiB/s"], "limits");
  same(levelText({ limit: { messages: "12400/s" }, mode: "enforce" }), "12,400/s");
  same([3_600_000, 7_200_000, 4.6e15].map(milliseconds), ["1 h", "2 h", "for ever"], "waits");
  same([0.004, 0.5, 0.994, 0.995, 0.9999, 1, 1.5].map(percent), ["<1 %", "50 %", "99 %", ">99 %", ">99 %", "100 %", "150 %"], "shares");
});

// ---- addresses -----------------------------------------------------------------------------------------------------------

test("a_queue_has_its_own_path", async () => {
  const { limitPath } = await load("router");
  same(limitPath({ protocol: "amqp", topic: "%2F/amq.default/jobs", operation: "consume" }), "/v1/limits/consume/queue/%2F/jobs");
  same(limitPath({ protocol: "amqp", topic: "%2F/amq.default/..", operation: "consume" }), "/v1/limits/consume/queue/%2F/~..");
  same(limitPath({ protocol: "amqp", topic: "%2F/amq.default/jobs", operation: "produce" }), "/v1/limits/amqp/%2F/amq.default/jobs");
  same(limitPath({ protocol: "rocketmq", topic: "a/b", operation: "consume" }), "/v1/limits/consume/rocketmq/a%2Fb");
});

test("an_address_has_a_topic_encoded_once_and_old_bookmarks_open", async () => {
  const { here, topicLink } = await load("router");
  const opened = (path) => {
    location.pathname = path;
    const { screen, params } = here();
    return [screen, params.protocol, params.topic];
  };
  const names = { amqp: ["%2F/orders/a%20b", "%2F/a%2Fb/%E8%AE%A2", "%2F/orders/", "%2F/orders/~..", "%FF/amq.default/100%25", "__other__"], rocketmq: ["orders", "%RETRY%a b", "..", "a/b"] };
  for (const protocol in names) {
    for (const topic of names[protocol]) {
      const link = topicLink({ protocol, topic });
      if (protocol === "amqp") same(link, `/topics/amqp/${topic}`);
      for (const [head, screen] of [["topics", "topic"], ["quotas", "quotas"], ["t", "my_topic"]]) {
        same(opened(link.replace("topics", head)), [screen, protocol, topic], "a link of the page");
        if (protocol === "amqp") same(opened(`/${head}/amqp/${encodeURIComponent(topic)}`), [screen, protocol, topic], "an old bookmark");
      }
    }
  }
  same(opened("/topics/amqp/%2F/orders")[0], "missing");
});

test("a_topic_of_another_operation_is_not_what_is_published", async () => {
  const { levelsPath, limitPath, seriesPath, topicLink } = await load("router");
  const jobs = (operation) => ({ protocol: "amqp", topic: "%2F/amq.default/jobs", operation });
  const found = (item) => [topicLink(item, { edit: "1" }), limitPath(item), levelsPath(item), seriesPath(item, "15m")];
  const [link, series] = ["/topics/amqp/%2F/amq.default/jobs?edit=1", "/v1/series?range=15m&protocol=amqp&topic=%252F%2Famq.default%2Fjobs"];
  same(found(jobs("produce")), [link, "/v1/limits/amqp/%2F/amq.default/jobs", "/v1/limits/amqp/%2F/amq.default/jobs", series]);
  same(found(jobs(undefined)), found(jobs("produce")));
  same(found(jobs("requeue")), [`${link}&operation=requeue`, "/v1/limits/requeue/queue/%2F/jobs", "/v1/limits/requeue/queue/%2F/jobs", `${series}&operation=requeue`]);
  same(found(jobs("get")), [`${link}&operation=get`, null, "/v1/limits/amqp/%2F/amq.default/jobs?operation=get", `${series}&operation=get`]);
  same(limitPath({ protocol: "rocketmq", topic: "%RETRY%g", operation: "requeue" }), null);
  const { operationBadge } = await load("parts");
  for (const operation of ["consume", "requeue", "declare", "bind", "delete", "purge", "open", "get", "connect", "query", "admin"]) check(!text(operationBadge({ operation })).includes("of_"), operation);
});

test("the_sum_of_topics_that_are_not_told_apart_is_no_topic", async () => {
  const state = await signedIn();
  const { limitPath } = await load("router");
  const { topicAnchor } = await load("parts");
  const { default: overview } = await load("overview");
  const { default: screen } = await load("topic");
  for (const protocol of ["amqp", "rocketmq"]) {
    const item = { protocol, topic: "__other__", operation: "produce" };
    same([limitPath(item), text(topicAnchor(item)), text(topicAnchor(item, null, true))], [null, "(all topics not told apart)", "(all topics not told apart)"]);
    const asked = gateway(({ path }) => ({ body: path === "/v1/topics" ? { items: [], total: 0 } : {} }));
    state.snapshot = snapshotOf({ over: [overOf(item)] });
    same(find(overview().view(), (node) => node.tag === "a" && String(node.props.class).includes("button small main")).length, 0, "ways to limit it");
    const shown = screen({ protocol, topic: "__other__" }, new URLSearchParams());
    await until(() => text(shown.view()).includes("only what is counted is summed"));
    check(!asked.some(({ path }) => path.startsWith("/v1/limits/")), "no limit is asked for");
    check(!/Change the limit|page for the team/.test(text(shown.view())), "a form, or a team");
    shown.leave();
  }
});

test("an_alarm_of_what_consumers_give_back_leads_to_it", async () => {
  const state = await signedIn();
  const { default: overview } = await load("overview");
  gateway(() => ({ body: {} }));
  state.snapshot = snapshotOf({ over: [overOf({ protocol: "amqp", topic: "%2F/amq.default/jobs", operation: "requeue" }), overOf({ protocol: "amqp", topic: "%2F/amq.default/jobs", operation: "get", rule: "gets" })] });
  const links = find(overview().view(), (node) => node.tag === "a" && String(node.props.class).includes("button small main"));
  same(links.map((link) => link.props.href), ["/topics/amqp/%2F/amq.default/jobs?edit=1&operation=requeue"], "where it can be limited");
});

test("a_live_change_of_a_name_that_is_not_utf_8_is_drawn", async () => {
  const { topicOf: topicOfTarget } = await load("router");
  same(topicOfTarget("limits/rocketmq/%FF"), null);
  same(topicOfTarget("limits/rocketmq/a%2Fb"), { protocol: "rocketmq", topic: "a/b" });
});

// ---- the overview --------------------------------------------------------------------------------------------------------

const within = { state: "within", client: null, user: null, group: null, client_share: null, first_waited_seconds: null, last_waits_seconds: 0, unrefused_because: null, would_refuse_per_second: 0 };
const overOf = (more) => ({ per: "topic", thing: "orders", rule: "std", operation: "produce", protocol: "rocketmq", topic: "orders", limit: "10/s", rate: 40, client: "10.0.0.1", user: "", group: "", client_share: 1, since: 1, bouts_since: 1, ...more });
const topicOf = (more) => ({ protocol: "rocketmq", topic: "orders", operation: "produce", received_per_second: 5000, forwarded_per_second: 2000, refused_per_second: 3000, waiting: 0, limit: { messages: "2000/s" }, account: within, ...more });
const snapshotOf = (more) => ({ boot: "b", ready: true, listeners: [], over: [], topics: [], rates: {}, totals: {}, warnings: [], revision: 1, live_changes: { total: 0, without_end: 0, items: [] }, quotas: null, connections: 0, topics_known: 0, ...more });

test("alarms_that_are_not_shown_are_counted", async () => {
  const state = await signedIn();
  const { default: overview } = await load("overview");
  gateway(() => ({ body: {} }));
  const over = Array.from({ length: 50 }, (_, at) => overOf({ thing: `t${at}`, topic: `t${at}` }));
  state.snapshot = snapshotOf({ over, over_total: 3000 });
  check(text(overview().view()).includes("and 2,992 more"), "of all that are over");
  state.snapshot = snapshotOf({ over });
  check(text(overview().view()).includes("and 42 more"), "of a gateway that does not tell");
});

test("an_alarm_of_a_clients_limit_is_about_that_client", async () => {
  const state = await signedIn();
  const { alarms } = await load("overview");
  const refused = { ...within, state: "refused", client: "10.0.0.2", client_share: 0.9 };
  state.snapshot = snapshotOf({ over: [overOf({ per: "client", thing: "10.0.0.1" })], topics: [topicOf({ account: refused })] });
  const [one] = alarms(state.snapshot);
  check(one.text.includes("40/s of 10/s") && !one.text.includes("10.0.0.2"), one.text);
  same([one.client, one.weight], ["10.0.0.1", 40], "client and weight");
  state.snapshot.over = [overOf()];
  const [topic] = alarms(state.snapshot);
  check(topic.text.includes("5,000/s of 10/s") && topic.text.includes("10.0.0.2"), topic.text);
  same([topic.client, topic.level], ["10.0.0.2", "bad"], "of the topic's own limit");
});

test("the_quotas_put_in_force_are_those_that_were_shown", async () => {
  await signedIn();
  const { default: quotas } = await load("quotas");
  let tried = "A";
  const asked = gateway(({ method, path }) => {
    if (method === "PUT") return { body: {} };
    if (path === "/v1/quotas/status") return { body: { published: { quotas: 1, sha256: "P" }, shadow: { quotas: 1, sha256: tried } } };
    return { body: path === "/v1/rules" ? { items: [] } : { quotas: [], of: path === "/v1/quotas" ? "P" : tried }, etag: "1" };
  });
  const screen = quotas({}, new URLSearchParams());
  const put = await until(() => byText(screen.view(), "Put these in force"));
  put.props.onclick();
  submit(await until(() => find(screen.view(), (node) => node.tag === "form").length && screen.view()));
  await until(() => asked.some((one) => one.method === "PUT"));
  same(asked.find((one) => one.method === "PUT").body.of, "A", "as shown");
  await until(() => !find(screen.view(), (node) => node.tag === "form").length);
  asked.length = 0;
  (await until(() => byText(screen.view(), "Put these in force"))).props.onclick();
  await until(() => find(screen.view(), (node) => node.tag === "form").length);
  tried = "B";
  submit(screen.view());
  await until(() => text(screen.view()).includes("Another snapshot is tried by now"));
  same(asked.filter((one) => one.method === "PUT").length, 0, "what was not shown");
  screen.leave();
});

test("what_is_given_back_waits_and_is_not_nacked", async () => {
  const { actionText } = await load("topic");
  const level = (operation) => ({ operation, mode: "enforce", action: "reject", reply: "flow_control" });
  same(["produce", "consume", "requeue", "declare"].map((operation) => actionText(level(operation), "amqp")), [
    "Messages over it are nacked; on a channel without confirms they wait.", "Deliveries wait for their turn.", "What is over it waits for its turn.", "What is over it waits for its turn.",
  ]);
});

test("a_limit_says_what_things_cost", async () => {
  const { levelCard } = await load("topic");
  const level = (cost) => text(levelCard({ operation: "produce", per: "user", thing: "shop", origin: "file", rule: "work", place: "", limit: { messages: "100/s" }, mode: "enforce", action: "delay", max_delay: "1s", cost }, "amqp", null));
  const found = level({ step: "4KiB", copy: 2, declare: 10, requeue: 3 });
  check(found.includes("It counts what things cost: a message 1 per 4KiB, a copy 2, declare 10, given back 3."), found);
  check(!level({}).includes("cost"), level({}));
});

test("what_becomes_of_what_waits_is_told_where_the_gateway_has_it", async () => {
  const { accountOf } = await load("topic");
  const told = (because) => text(accountOf({ waiting: 40, refused_per_second: 0, received_per_second: 5, limit: { messages: "5/s" }, account: { state: "waiting", since: null, first_waited_seconds: 3, last_waits_seconds: 8, client: null, unrefused_because: because } }));
  for (const [because, words] of [["no_confirms", /it loses that; without confirms/], ["one_way", /it loses that/], ["delay", /gives that up; none of it was confirmed\.$/], ["spool", /none of it was confirmed\. While the disk is full, the publisher is not read\.$/]]) check(words.test(told(because)), `${because}: ${told(because)}`);
  for (const because of ["block", "consume", "requeue"]) check(!/Killed/.test(told(because)), `${because}: ${told(because)}`);
});

test("a_topic_without_a_limit_of_its_own_is_told_the_cap_that_refuses_it", async () => {
  const { accountOf } = await load("topic");
  const now = { refused_per_second: 9, received_per_second: 10, limit: null, account: { state: "refused", since: null, client: null } };
  const found = text(accountOf(now, null, { per: "listener", thing: "rabbit", operation: "produce", limit: { messages: "200/s" } }));
  check(found.includes("It ends when no more than 200/s (for the listener rabbit) comes."), found);
});

test("a_quota_that_is_tried_is_not_told_as_the_published_one", async () => {
  const { levelCard } = await load("topic");
  const level = { operation: "produce", per: "topic", thing: "orders", origin: "quota-shadow", rule: "std", place: "", limit: { messages: "5/s" }, mode: "shadow", action: "reject", by: "", at: null, reason: "", expires: null, rule_limit: null };
  const found = text(levelCard(level, "rocketmq", { date: "2026-11-20", by: "night", at: "2026-11-21T01:00:00Z" }));
  check(found.includes("quota, tried") && !/2026-11-20|night|origin_/.test(found), found);
});

// ---- the change of a limit -----------------------------------------------------------------------------------------------

/** A gateway with one limit, `key` = {override, tag}, and the editor of it; `history`: of changes before. */
async function editing({ key, levels = [], history = [], open = false, item = { protocol: "rocketmq", topic: "orders", operation: "produce" }, data = {} }) {
  await signedIn();
  const path = "/v1/limits/rocketmq/orders";
  const asked = gateway(({ method, path: at, query, body, etag }) => {
    if (at === "/v1/history") return { body: { items: history } };
    if (at === "/v1/series") return { body: { points: { received: [9, 9, 9] } } };
    if (method !== "GET" && etag && etag !== key.tag) return { status: 412, body: { detail: "changed" } };
    if (query.includes("dry_run")) return { body: { topics: [{ before: [], after: [{ per: "topic", operation: item.operation, limit: body, mode: body.mode, expires: TIMES[body.expires] ?? body.expires }] }], topics_affected: 1, remarks: [], would_have_refused: { messages: 1, of: 2, seconds: 300 } } };
    if (method !== "GET") Object.assign(key, { override: method === "DELETE" ? null : { ...body, by: "me", at: `T${asked.length}` }, tag: `${key.tag}+` });
    return { body: { override: key.override, levels }, etag: key.tag };
  });
  const { editor } = await load("edit");
  const edit = editor(item, path, { open, current: () => ({ body: { override: key.override, levels }, ...data }), refresh: nothing });
  const written = () => asked.filter(({ method, query }) => method !== "GET" && !query.includes("dry_run"));
  return { edit, asked, written };
}

const ahead = (minutes) => new Date(Date.now() + minutes * 60_000).toISOString();
const TIMES = { "30m": ahead(30), "7d": ahead(10_080) }; // ends that a gateway makes of them
const changedBy = (by, messages, more) => ({ messages, mode: "enforce", by, at: `of ${by}`, ...more });
const dialogOf = (edit) => until(() => find(edit.view(), (node) => node.tag === "dialog")[0]);

test("an_undo_over_somebody_elses_change_undoes", async () => {
  const [bobs, anas] = [changedBy("bob", "100/s"), changedBy("ana", "500/s")];
  const history = [{ changes: [{ target: "limits/rocketmq/orders", before: bobs, after: anas }] }];
  for (const before of [bobs, null]) {
    history[0].changes[0].before = before;
    const key = { override: anas, tag: "1" };
    const { edit, written } = await editing({ key, history });
    await edit.seen(anas);
    Object.assign(key, { override: changedBy("carol", "50/s"), tag: "2" });
    byId(edit.view(), "undo").props.onclick();
    const dialog = await dialogOf(edit);
    check(text(dialog).includes("50/s"), text(dialog));
    same(text(dialog).includes("100/s"), before !== null, "mine is what was before");
    same(byText(dialog, "Go on editing"), undefined, "no form is open");
    await edit.seen(key.override);
    byText(dialog, "Apply mine").props.onclick();
    await until(() => text(edit.view()).includes("Undone"));
    same(written().map(({ method, etag, body }) => [method, etag, body?.messages]), [before ? ["PUT", "2", "100/s"] : ["DELETE", "2", undefined]], "written");
  }
});

test("an_undo_needs_only_that_the_change_is_still_in_force", async () => {
  const anas = changedBy("ana", "500/s");
  const key = { override: anas, tag: "1" };
  const { edit, written } = await editing({ key, open: true });
  await until(() => byId(edit.view(), "edit-messages").props.value === "500/s");
  byId(edit.view(), "edit-messages").props.oninput({ target: { value: "900/s" } });
  find(edit.view(), (node) => node.tag === "form")[0].props.onsubmit({ preventDefault: nothing });
  await until(() => byId(edit.view(), "undo"));
  key.tag = "after the nightly quotas";
  byId(edit.view(), "undo").props.onclick();
  await until(() => text(edit.view()).includes("Undone"));
  same(written().map(({ method, etag, body }) => [method, etag, body.messages]), [["PATCH", "1", "900/s"], ["PUT", "after the nightly quotas", "500/s"]], "written");
});

test("taking_back_over_somebody_elses_change_takes_back", async () => {
  const key = { override: changedBy("ana", "500/s"), tag: "1" };
  const { edit, written } = await editing({ key, open: true });
  await until(() => byText(edit.view(), "Take the live change back"));
  Object.assign(key, { override: changedBy("carol", "50/s"), tag: "2" });
  byText(edit.view(), "Take the live change back").props.onclick();
  byText(await dialogOf(edit), "Apply mine").props.onclick();
  await until(() => key.override === null);
  same(written().map(({ method, etag }) => [method, etag]), [["DELETE", "1"], ["DELETE", "2"]], "written");
});

// ---- what is done about a client -----------------------------------------------------------------------------------------

const preview = () => ({ body: { changes: [{ before: null }], remarks: [] }, etag: "1" });

/** The dialogue "limit client …" of a topic, once its first preview was asked for. */
async function limiting(item, client, more, answer = preview) {
  await signedIn();
  const asked = gateway(answer);
  const { culpritActions } = await load("act");
  const act = culpritActions(item, () => ({ now: { clients: [{ client, received_per_second: 50, ...more }], limit: { messages_per_second: 100 } }, refresh: nothing }));
  act.limit(client);
  await until(() => asked.length);
  const choose = async (id, value) => {
    const before = asked.length;
    byId(act.view(), id).props.onchange({ target: { value } });
    await until(() => asked.length > before);
  };
  return { act, asked, choose };
}

test("each_client_on_each_topic_has_a_rule_of_its_own", async () => {
  const orders = { protocol: "rocketmq", topic: "orders", operation: "produce" };
  const created = (topic, protocol = "amqp") => ({ protocol, topic, operation: "produce" });
  const names = [];
  for (const user of ["\u8ba2\u5355\u670d\u52a1", "\u652f\u4ed8\u670d\u52a1"]) {
    const { asked, choose } = await limiting(orders, "10.0.0.1", { user });
    await choose("act-who", "user");
    names.push(asked.at(-1).path);
  }
  for (const [item, client] of [[orders, "2001:db8::5"], [orders, "2001:db8:5::"], [created("orders-created", "rocketmq"), "10.0.0.9"], [created("%2F/orders/created"), "10.0.0.9"], [created("%2F/orders/%E5%88%9B"), "10.0.0.9"], [created("%2F/orders/%E5%8F%96"), "10.0.0.9"]]) {
    const { asked } = await limiting(item, client);
    names.push(asked[0].path);
  }
  same(new Set(names).size, 8, names.join(" "));
  check(names.every((each) => /^\/v1\/rules\/limit-[\w.-]{1,60}$/.test(each)), names.join(" "));
});

const submit = (view) => find(view, (node) => node.tag === "form")[0].props.onsubmit({ preventDefault: nothing });

test("a_limit_of_a_client_is_told_until_it_ends", async () => {
  const saved = { live: { expires: ahead(30) }, override: null };
  const { act, asked } = await limiting({ protocol: "rocketmq", topic: "orders", operation: "produce" }, "10.0.0.9", {}, ({ query }) => (query.includes("dry_run") ? preview() : { body: saved, etag: "2" }));
  submit(act.view());
  await until(() => byId(act.view(), "act-undo"));
  check(/In force: 50\/s for 10\.0\.0\.9\. \u00b7 ends in (30|29) min/.test(text(act.view())), text(act.view()));
  const now = Date.now;
  Date.now = () => now() + 31 * 60_000;
  same(byId(act.view(), "act-undo"), undefined, "half an hour later");
  check(asked.length > 1, "written");
});

test("what_a_limit_stops_is_told_of_this_topic_alone", async () => {
  const { act, choose } = await limiting({ protocol: "rocketmq", topic: "orders", operation: "produce" }, "10.0.0.9");
  check(text(act.view()).includes("it stops so much of what comes"), "on this topic");
  await choose("act-where", "all");
  check(!text(act.view()).includes("it stops so much"), "everywhere");
});

test("the_command_of_a_name_that_begins_with_a_dash_has_its_options_first", async () => {
  for (const [group, command] of [["billing", "group billing --messages 50/s --for 30m --reason '...'"], ["--yes", "--messages 50/s --for 30m --reason '...' -- group --yes"]]) {
    const { act, choose } = await limiting({ protocol: "rocketmq", topic: "orders", operation: "produce" }, "10.0.0.9", { group });
    await choose("act-who", "group");
    await choose("act-where", "all");
    check(text(act.view()).includes(`sluice limits set ${command}`), text(act.view()));
  }
});

test("the_undo_of_a_clients_limit_says_what_it_gives_back", async () => {
  for (const before of [null, { rule: { limit: { messages: "7/s" } }, expires: null }, { messages: "7/s", expires: null }]) {
    const { act } = await limiting({ protocol: "rocketmq", topic: "orders", operation: "produce" }, "10.0.0.9", {}, () => ({ body: { changes: [{ before }], remarks: [] }, etag: "1" }));
    submit(act.view());
    same(text(await until(() => byId(act.view(), "act-undo"))), before ? "Undo: back to 7/s" : "Undo: take it back");
  }
});

test("the_team_is_told_that_nothing_is_broken_only_when_it_is_refused", async () => {
  await signedIn();
  const { default: myTopic } = await load("my_topic");
  for (const state of ["within", "refused"]) {
    gateway(({ path }) => ({ body: path === "/v1/topics" ? { items: [topicOf({ account: { ...within, state } })] } : path === "/v1/clients" ? { items: [] } : path === "/v1/quotas/status" ? { published: null } : path === "/v1/series" ? { points: {}, marks: [], missing: [] } : { levels: [] } }));
    const screen = myTopic({ protocol: "rocketmq", topic: "orders" });
    await until(() => /within its limit|limited now/.test(text(screen.view())));
    same(text(screen.view()).includes("Nothing is broken"), state === "refused", state);
    screen.leave();
  }
});

test("all_connections_of_a_client_are_found", async () => {
  const { act } = await limiting({ protocol: "rocketmq", topic: "orders", operation: "produce" }, "10.0.0.1", {}, ({ path, query }) => {
    if (path !== "/v1/connections") return preview();
    const second = query.includes("cursor=2");
    return { body: { items: [{ id: second ? 2 : 1, client: second ? "10.0.0.1:5000" : "10.0.0.12:5000" }], next: second ? null : "2" } };
  });
  byText(act.view(), "Cancel").props.onclick();
  byText(act.ways("10.0.0.1"), "close its connections").props.onclick();
  await until(() => text(act.view()).includes("Close 1 connections of 10.0.0.1?"));
});

test("what_fails_after_its_question_was_closed_is_told", async () => {
  const state = await signedIn();
  const { confirmation } = await load("confirm");
  const question = confirmation();
  const fails = [];
  const run = () => new Promise((_, reject) => fails.push(() => reject(Object.assign(new Error("disk full"), { status: 507 }))));
  question.ask({ title: "One?", action: "do it", run });
  submit(question.view());
  byText(question.view(), "Cancel").props.onclick();
  question.ask({ title: "Another?", action: "do it", run });
  fails[0]();
  await until(() => state.told);
  same(state.told, { text: "\u201cOne?\u201d failed: disk full", bad: true });
  check(!text(question.view()).includes("disk full"), text(question.view()));
  submit(question.view());
  fails[1]();
  await until(() => text(question.view()).includes("disk full"));
  submit(question.view());
  location.pathname = "/changes";
  state.told = null;
  fails[2]();
  await until(() => state.told?.text.includes("Another?"));
});

test("a_topic_that_no_rule_can_name_alone_is_limited_everywhere", async () => {
  for (const topic of ["%2F/orders/jobs%5Beu%5D", "%2F/orders/a.%23", "%2F/orders/%FF%FE"]) {
    const { act, asked } = await limiting({ protocol: "amqp", topic, operation: "produce" }, "10.0.0.9");
    same([asked[0].method, asked[0].path], ["PATCH", "/v1/limits/client/10.0.0.9"], topic);
    same(text(byId(act.view(), "act-where")), "everywhere", topic);
  }
});

test("the_form_begins_with_the_limit_of_what_it_changes", async () => {
  const level = (operation, messages, more) => ({ operation, per: "topic", limit: { messages, messages_per_second: parseFloat(messages) }, mode: "enforce", origin: "default", ...more });
  const [consumed, tried] = [level("consume", "7/s"), level("produce", "5/s", { origin: "quota-shadow", mode: "shadow" })];
  for (const [levels, operation, begins] of [[[consumed, tried], "produce", ""], [[level("produce", "9/s"), consumed], "produce", "9/s"], [[level("produce", "9/s"), consumed], "consume", "7/s"]]) {
    const { edit } = await editing({ key: { override: null, tag: "1" }, levels, open: true, item: { protocol: "rocketmq", topic: "orders", operation } });
    await until(() => !find(edit.view(), (node) => node.props["aria-busy"]).length);
    same(byId(edit.view(), "edit-messages").props.value, begins, operation);
    same(Boolean(byText(edit.view(), "14/s")), operation === "consume", "twice the limit now");
  }
});

test("what_lasts_longer_is_not_lost_without_a_word", async () => {
  const hours = ahead(180);
  for (const [expires, begins, shorter] of [[null, "", true], [hours, hours, true], [ahead(5), "30m", false]]) {
    const { edit, written } = await editing({ key: { override: changedBy("bob", "50/s", { expires }), tag: "1" }, open: true });
    await until(() => byId(edit.view(), "edit-messages").props.value === "50/s");
    const time = byId(edit.view(), "edit-time");
    same(find(time, (node) => node.props.selected).map((node) => node.props.value), [begins], "the end that is chosen");
    time.props.onchange({ target: { value: "30m" } });
    await until(() => text(edit.view()).includes("\u2192"));
    same(/rule holds again, and not the 50\/s of bob/.test(text(edit.view())), shorter, `30 minutes over one that ends ${expires}`);
    find(edit.view(), (node) => node.tag === "form")[0].props.onsubmit({ preventDefault: nothing });
    await until(() => written().length);
    same(written()[0].body.expires, "30m");
  }
});

test("an_undo_to_what_has_ended_meanwhile_takes_back", async () => {
  const anas = changedBy("ana", "500/s");
  const history = [{ changes: [{ target: "limits/rocketmq/orders", before: changedBy("bob", "50/s", { expires: ahead(15) }), after: anas }] }];
  const { edit, written } = await editing({ key: { override: anas, tag: "1" }, history });
  await edit.seen(anas);
  same(text(byId(edit.view(), "undo")), "Undo: back to 50/s");
  const now = Date.now;
  Date.now = () => now() + 16 * 60_000;
  same(text(byId(edit.view(), "undo")), "Undo: the rule holds again");
  byId(edit.view(), "undo").props.onclick();
  await until(() => text(edit.view()).includes("Undone"));
  same(written().map(({ method }) => method), ["DELETE"], "written");
});

test("an_end_is_judged_by_the_gateways_clock", async () => {
  const state = await signedIn();
  const { lasting } = await load("edit");
  const change = { messages: "50/s", expires: ahead(30) };
  const now = Date.now;
  Date.now = () => now() + 60 * 60_000;
  same(lasting(change), null, "a browser an hour ahead, which is right");
  state.skew = -60 * 60_000;
  same(lasting(change), change, "a browser an hour ahead of its gateway");
});

test("the_reason_that_is_filled_in_has_a_time_for_all_zones", async () => {
  const { edit } = await editing({ key: { override: null, tag: "1" }, open: true });
  const { state, topicKey } = await load("store");
  state.over = new Map([[topicKey({ protocol: "rocketmq", topic: "orders" }), { since: "2026-11-30T16:24:41.500Z" }]]);
  await until(() => !find(edit.view(), (node) => node.props["aria-busy"]).length);
  edit.view();
  same(byId(edit.view(), "edit-reason").props.value, "over its limit since 2026-11-30 16:24Z");
});

test("what_one_gateway_of_a_fleet_has_counted_is_told_as_that", async () => {
  for (const gateways of [1, 4]) {
    const { edit } = await editing({ key: { override: null, tag: "1" }, open: true });
    const { state } = await load("store");
    state.snapshot = snapshotOf({ fleet: { name: "shop", gateways } });
    byId(edit.view(), "edit-messages").props.oninput({ target: { value: "9/s" } });
    await until(() => text(edit.view()).includes("It would have refused 1 of 2"));
    same([Boolean(byText(edit.view(), "9/s \u2013 what it sends")), text(edit.view()).includes("its fleet has 4")], gateways === 1 ? [true, false] : [false, true]);
  }
});

test("a_topic_that_was_seen_is_changed_by_its_very_name", async () => {
  for (const [now, query] of [[{ topic: "orders" }, "literal=1"], [null, ""]]) {
    const { edit, asked, written } = await editing({ key: { override: changedBy("ana", "500/s"), tag: "1" }, open: true, data: { now } });
    await until(() => byId(edit.view(), "edit-messages").props.value === "500/s");
    byId(edit.view(), "edit-messages").props.oninput({ target: { value: "900/s" } });
    await until(() => asked.some((one) => one.query === `dry_run=1${query && `&${query}`}`));
    find(edit.view(), (node) => node.tag === "form")[0].props.onsubmit({ preventDefault: nothing });
    (await until(() => byId(edit.view(), "undo"))).props.onclick();
    await until(() => text(edit.view()).includes("Undone"));
    same(written().map((one) => [one.method, one.query]), [["PATCH", query], ["PUT", query]], "written");
  }
});

await cases[name]();
process.exit(0);
