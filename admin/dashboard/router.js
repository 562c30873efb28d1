// The address says which screen is shown: it can be sent to others.

/** The address of a screen of one topic: as the API's paths have it, or in one segment, in which AMQP's text is encoded once more, as in old bookmarks. */
const ofTopic = (head) => new RegExp(`^/${head}/([^/]+)/([^/]+|[^/]+/[^/]+/[^/]*)$`);

const ROUTES = [
  [/^\/$/, "overview", []],
  [/^\/topics$/, "topics", []],
  [ofTopic("topics"), "topic", ["protocol", "topic"]],
  [/^\/connections$/, "connections", []],
  [/^\/connections\/([^/]+)$/, "connections", ["id"]],
  [/^\/brokers$/, "brokers", []],
  [/^\/changes$/, "changes", []],
  [/^\/changes\/([^/]+)$/, "changes", ["revision"]],
  [/^\/quotas$/, "quotas", []],
  [ofTopic("quotas"), "quotas", ["protocol", "topic"]],
  [/^\/configuration$/, "configuration", []],
  [ofTopic("t"), "my_topic", ["protocol", "topic"]],
];

/** A word as a segment of a path. Browsers take `.` and `..` out of paths, percent-encoded ones too, so `~` stands before them. */
export const segment = (word) => encodeURIComponent(word).replace(/^~*\.\.?$/, "~$&");

/** The word of a decoded segment. */
export const partOf = (decoded) => (/^~+\.\.?$/.test(decoded) ? decoded.slice(1) : decoded);

/** {screen, params, query} of the present address; screen "missing" where there is none. */
export function here() {
  for (const [pattern, screen, names] of ROUTES) {
    const found = pattern.exec(location.pathname);
    if (!found) continue;
    const params = {};
    try {
      names.forEach((name, at) => (params[name] = found[at + 1].includes("/") ? found[at + 1] : partOf(decodeURIComponent(found[at + 1]))));
    } catch {
      break;
    }
    return { screen, params, query: new URLSearchParams(location.search) };
  }
  return { screen: "missing", params: {}, query: new URLSearchParams() };
}

let moved = () => {};

export function onMove(listener) {
  moved = listener;
}

export function go(path) {
  if (path !== location.pathname + location.search) history.pushState(null, "", path);
  moved(true);
}

/** Change what stands behind `?` without a step in the history: a search as it is typed. */
export function amend(values) {
  const query = new URLSearchParams(location.search);
  for (const name in values) values[name] ? query.set(name, values[name]) : query.delete(name);
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
}

addEventListener("popstate", () => moved(false));
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || link.target || link.hasAttribute("download") || url.pathname.startsWith("/v1/") || url.hash) return;
  event.preventDefault();
  go(url.pathname + url.search);
});

/** What is done with the topic's messages, where that is not that they are published: a topic of its own in lists and charts. */
export const otherThanProduce = ({ operation }) => (operation && operation !== "produce" ? operation : "");

/** Whether it is about messages: what clients say beside them (declare, get, …) is limited by rules alone, for who says it. */
export const ofMessages = (item) => ["", "consume", "requeue"].includes(otherThanProduce(item));

export const topicLink = (item, more = "") => {
  const query = new URLSearchParams(more);
  if (otherThanProduce(item)) query.set("operation", item.operation);
  const text = query.toString();
  return `/topics/${topicPath(item)}${text ? `?${text}` : ""}`;
};

/** The text of an AMQP topic is encoded already, part by part, but where a person has typed it. */
const partsOf = ({ protocol, topic }) => (protocol === "amqp" ? topic.split("/").map((part) => part.replace(/^\.\.?$/, "~$&")) : [segment(topic)]);

/** A topic as the paths of the API and the addresses of screens have it. */
export const topicPath = (item) => `${item.protocol}/${partsOf(item).join("/")}`;

/** Whether it is the sum of topics that are not told apart: no topic has its limit. */
export const isSum = ({ topic }) => topic === "__other__";

/** The API's path of a topic's limit, to read and to change it. null: it cannot be changed by itself, only its rules. */
export function limitPath(item) {
  const { protocol, operation } = item;
  if (isSum(item)) return null;
  const parts = partsOf(item);
  if (!otherThanProduce(item)) return `/v1/limits/${topicPath(item)}`;
  if (protocol === "amqp" && ofMessages(item) && parts.length === 3) return `/v1/limits/${operation}/queue/${parts[0]}/${parts[2]}`; // of vhost/amq.default/queue
  return protocol === "rocketmq" && operation === "consume" ? `/v1/limits/consume/rocketmq/${parts[0]}` : null;
}

/** The API's path of the limits that hold for it, whether they can be changed there or not. */
export const levelsPath = (item) => limitPath(item) ?? `/v1/limits/${topicPath(item)}?operation=${item.operation}`;

/** `limits/amqp/%2F/orders/x` as {protocol, topic}; null where it is no topic's. */
export function topicOf(target) {
  const found = /^limits\/(amqp|rocketmq)\/(.+)$/.exec(target);
  if (!found) return null;
  try {
    return { protocol: found[1], topic: found[1] === "amqp" ? found[2] : partOf(decodeURIComponent(found[2])) };
  } catch {
    return null; // not UTF-8: no address of the page can name it
  }
}

export const seriesPath = (item, range) =>
  `/v1/series?range=${range}` +
  (item ? `&protocol=${item.protocol}&topic=${segment(item.topic)}${otherThanProduce(item) ? `&operation=${item.operation}` : ""}` : "");
