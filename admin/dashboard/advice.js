// What a client library shows when a limit bites: the table of `sluice why`, looked up in the same way.

import table from "./advice_table.js";

export const ADVICE = table;

/** The library behind a connection, by what it says of itself; null: it is not known. */
export function libraryOf(connection) {
  const own = connection.client_properties || {};
  const [name, product, platform] = [own.connection_name, own.product, own.platform].map((text) => String(text || "").toLowerCase());
  for (const one of ADVICE) {
    if (one.protocol !== connection.protocol) continue;
    const [from, below] = one.versions;
    if ((one.languages || []).includes(connection.language) && connection.version >= from && connection.version < below) return one;
    if ((one.connection_names || []).some((begin) => name.startsWith(begin))) return one;
    if ((one.products || []).some((begin) => product.startsWith(begin) || platform.startsWith(begin))) return one;
  }
  return null;
}

const WORDS = { delay: "held", spool: "spooled", block: "blocked", drop: "dropped", close: "closed", reject: "refused" };

/** How a limit bites: the keys of an advice's `shows`. */
export function situationsOf(level, protocol) {
  if (!level) return ["refused"];
  if (level.operation === "consume") return ["consuming"];
  if (level.action !== "reject") return level.action === "delay" ? ["held", "refused"] : [WORDS[level.action]];
  if (level.reply === "system_busy") return ["system_busy"];
  return protocol === "amqp" ? [...new Set(["refused", WORDS[level.fallback]])] : ["refused"];
}
