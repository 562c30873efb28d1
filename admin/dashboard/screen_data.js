// What a screen reads from the API again and again: into its `data`, with `data.error` where that fails, and drawn each time.

import { get, poll } from "./api.js";
import { seriesPath } from "./router.js";
import { redraw, state } from "./store.js";

const WRONG_MS = 30_000; // by so much a browser's clock is wrong, and not the answer late
const AGAIN = 5; // points of a series that are asked for once more: a mark may be written down after the point of its time was read

const MOST_BARE = 3; // answers: a gateway that has begun anew has its first point by then

/** Runs `read(signal)` now and each `seconds` (or what that function says), until stop(). The page is busy until the first has ended. */
export function refresh(data, read, seconds) {
  let first = true;
  const ended = () => {
    if (first) state.reading -= 1;
    first = false;
  };
  state.reading += 1;
  const polled = poll(async (signal) => {
    try {
      await read(signal);
      data.error = null;
    } catch (error) {
      if (error.name !== "AbortError") data.error = error;
      throw error;
    } finally {
      ended();
      redraw();
    }
  }, seconds);
  return {
    now: polled.now,
    stop() {
      ended();
      polled.stop();
    },
  };
}

const NEAR_OF = 500; // topics, the busiest: of these are the names that are near to one that was never seen; a page of the API
const MOST_NEAR = 3;

/** How many letters to insert, drop or change from one text to the other (Levenshtein 1966). */
function distance(one, other) {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let at = 1; at <= one.length; at += 1) {
    const next = [at];
    for (let to = 1; to <= other.length; to += 1) next.push(Math.min(row[to] + 1, next[to - 1] + 1, row[to - 1] + (one[at - 1] === other[to - 1] ? 0 : 1)));
    row = next;
  }
  return row.at(-1);
}

/** Topics whose names are near to `topic`: another last part by a few letters, or another place with the same last part. */
export function nearTopics(topic, items) {
  const last = (text) => text.toLowerCase().split("/").at(-1);
  const near = ({ topic: name }) => last(name) === last(topic) ? 0 : name.length > 300 || topic.length > 300 ? Infinity : distance(name.toLowerCase(), topic.toLowerCase());
  const most = Math.max(2, last(topic).length / 4);
  return items.map((item) => ({ item, by: near(item) })).filter((each) => each.by <= most).sort((one, other) => one.by - other.by).slice(0, MOST_NEAR).map((each) => each.item);
}

/** Into `data`: `now`, what a topic does (null: it was never seen; then `near`, topics of names like it), and `clients`, address -> client. */
export async function readTopic({ protocol, topic, operation }, data, signal) {
  const name = encodeURIComponent(topic);
  const { items } = await get(`/v1/topics?protocol=${protocol}&topic=${name}`, { signal });
  data.now = items.find((each) => each.operation === operation) ?? null;
  if (data.now === null) data.near ??= nearTopics(topic, (await get(`/v1/topics?sort=rate&limit=${NEAR_OF}`, { signal })).items);
  const clients = (await get(`/v1/clients?protocol=${protocol}&q=${name}&limit=500`, { signal })).items;
  data.clients = new Map(clients.filter((each) => each.topic === topic).map((each) => [each.client, each]));
}

/** A series with the points of `more`, of later; `most` points at most. null: they do not fit together. */
export function longer(series, more, most) {
  if (!more.known) return more;
  const bare = (series.bare || 0) + 1; // answers without a point, though points are asked for once more
  if (!more.end) return bare > MOST_BARE ? null : { ...series, missing: more.missing, bare }; // it has just begun; or its clock was set back
  const before = (more.start - series.start) / more.step; // points that are older than those of `more`
  if (before < 0 || before % 1) return null; // the clock was set back, or a gateway that has begun anew counts its ten seconds otherwise
  const drop = Math.max(0, before + more.points.received.length - most);
  const start = series.start + drop * more.step;
  const points = {};
  for (const name in more.points) {
    const [old, now] = [series.points[name], more.points[name]];
    const hole = new Array(Math.max(0, before - (old?.length ?? before))).fill(null);
    points[name] = old && now ? [...old.slice(0, before), ...hole, ...now].slice(drop) : now;
  }
  return { ...more, start, points, marks: [...series.marks.filter((mark) => mark.ts >= start && mark.ts < more.start), ...more.marks] };
}

/** The points of a topic's chart (null: of all topics together) over `data.range`, in `data.series`; those of 15 minutes each `seconds`. */
export function points(item, data, seconds) {
  let feed = null;
  function begin() {
    feed?.stop();
    const [path, most, pause] = [seriesPath(item, data.range), ...(data.range === "24h" ? [8640, 10] : [900, seconds])];
    feed = poll(async (signal) => {
      const known = data.series;
      const some = known?.end ? longer(known, await get(`${path}&since=${known.end - AGAIN * known.step}`, { signal }), most) : null;
      data.series = some ?? (await get(path, { signal }));
      const off = (data.series.end + data.series.step) * 1000 - Date.now(); // the last point is of just now
      state.skew = data.series.end && Math.abs(off) > WRONG_MS ? off : 0;
      redraw();
    }, pause);
  }
  begin();
  return {
    stop: () => feed.stop(),
    choose(range) {
      data.range = range;
      data.series = null;
      begin();
      redraw();
    },
  };
}
