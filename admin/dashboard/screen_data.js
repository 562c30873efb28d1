// What a screen reads from the API again and again: into its `data`, with `data.error` where that fails, and drawn each time.

import { get, poll } from "./api.js";
import { seriesPath } from "./router.js";
import { redraw } from "./store.js";

/** Runs `read(signal)` now and each `seconds`, until stop(). */
export function refresh(data, read, seconds) {
  return poll(async (signal) => {
    try {
      await read(signal);
      data.error = null;
    } catch (error) {
      if (error.name !== "AbortError") data.error = error;
      throw error;
    } finally {
      redraw();
    }
  }, seconds);
}

/** The points of a topic's chart (null: of all topics together) over `data.range`, in `data.series`; those of 15 minutes each `seconds`. */
export function points(item, data, seconds) {
  let feed = null;
  function begin() {
    feed?.stop();
    feed = poll(async (signal) => {
      data.series = await get(seriesPath(item, data.range), { signal });
      redraw();
    }, data.range === "15m" ? seconds : 10);
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
