// The page's modules in node, without a browser: the document is a stand-in, and the gateway a function of each case.

import { argv } from "node:process";

const [, , folder, name] = argv;
const nothing = () => {};

Object.assign(globalThis, {
  document: { documentElement: { lang: "en", dataset: {} }, hidden: false, addEventListener: nothing, getElementById: () => ({ focus: nothing, style: {} }), createElement: () => ({ style: {} }), head: { append: nothing }, activeElement: null },
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

// ---- addresses -----------------------------------------------------------------------------------------------------------

test("a_queue_has_its_own_path", async () => {
  const { limitPath } = await load("router");
  same(limitPath({ protocol: "amqp", topic: "%2F/amq.default/jobs", operation: "consume" }), "/v1/limits/consume/queue/%2F/jobs");
  same(limitPath({ protocol: "amqp", topic: "%2F/amq.default/..", operation: "consume" }), "/v1/limits/consume/queue/%2F/~..");
  same(limitPath({ protocol: "amqp", topic: "%2F/amq.default/jobs", operation: "produce" }), "/v1/limits/amqp/%2F/amq.default/jobs");
  same(limitPath({ protocol: "rocketmq", topic: "a/b", operation: "consume" }), "/v1/limits/consume/rocketmq/a%2Fb");
});

// ---- the overview --------------------------------------------------------------------------------------------------------

const within = { state: "within", client: null, user: null, group: null, client_share: null, first_waited_seconds: null, last_waits_seconds: 0, unrefused_because: null, would_refuse_per_second: 0 };
const overOf = (more) => ({ per: "topic", thing: "orders", rule: "std", operation: "produce", protocol: "rocketmq", topic: "orders", limit: "10/s", rate: 40, client: "10.0.0.1", user: "", group: "", client_share: 1, since: 1, bouts_since: 1, ...more });
const topicOf = (more) => ({ protocol: "rocketmq", topic: "orders", operation: "produce", received_per_second: 5000, forwarded_per_second: 2000, refused_per_second: 3000, waiting: 0, limit: { messages: "2000/s" }, account: within, ...more });
const snapshotOf = (more) => ({ boot: "b", ready: true, listeners: [], over: [], topics: [], rates: {}, totals: {}, warnings: [], revision: 1, live_changes: { total: 0, without_end: 0, items: [] }, quotas: null, connections: 0, topics_known: 0, ...more });

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

await cases[name]();
process.exit(0);
