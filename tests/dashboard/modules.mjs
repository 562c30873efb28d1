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

await cases[name]();
process.exit(0);
