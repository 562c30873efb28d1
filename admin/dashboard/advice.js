// What a client library shows when a limit bites: the table of `sluice why`, looked up in the same way.

import table, { BITES, SITUATIONS } from "./advice_table.js";
import { language } from "./text.js";

/** Each library of a protocol in the language chosen: {name, shows: {situation: text}, to_do}. */
export async function adviceOf(protocol) {
  const texts = (await import(`./messages/advice_${language()}.js`)).default;
  const text = (number) => texts[number].replace("{}", texts[0]);
  const shows = (numbers) => Object.fromEntries(SITUATIONS.map((bite, at) => [bite, numbers[at] > 0 && text(numbers[at])]));
  return table.filter((row) => row[1] === protocol).map(([name, , , numbers, toDo]) => ({ name, shows: shows(numbers), to_do: text(toDo) }));
}

/** The name of the library behind a connection, by what it says of itself; null: it is not known. */
export function libraryOf(connection) {
  const own = connection.client_properties || {};
  const [name, product, platform] = [own.connection_name, own.product, own.platform].map((text) => String(text || "").toLowerCase());
  const begins = (beginnings, ...texts) => (beginnings || []).some((begin) => texts.some((text) => text.startsWith(begin)));
  const found = table.find(([, protocol, { products, connection_names, languages, versions }]) =>
    protocol === connection.protocol &&
    ((languages?.includes(connection.language) && connection.version >= versions[0] && connection.version < versions[1]) || begins(connection_names, name) || begins(products, product, platform)));
  return found ? found[0] : null;
}

/** How a limit bites: the keys of an advice's `shows`. */
export function situationsOf(level, protocol) {
  if (!level) return ["refused"];
  if (level.mode !== "enforce") return [];
  if (level.operation === "consume") return ["consuming"];
  if (level.action !== "reject") return BITES[level.action] || [];
  if (level.reply === "system_busy") return ["system_busy"];
  return protocol === "amqp" ? [...new Set(["refused", BITES[level.fallback][0]])] : ["refused"];
}
