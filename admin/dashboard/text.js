// Every word on the page comes from here: t("key", {name: value}) in the language chosen (at first by theme.js).

let chosen = document.documentElement.lang.slice(0, 2);
let words = await wordsOf(chosen);

async function wordsOf(name) {
  return (await import(`./messages/${name}.js`)).default;
}

export function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch { /* it holds until the page is left */ }
}

export const language = () => chosen;

/** Raises TypeError where the gateway cannot be reached. */
export async function setLanguage(name) {
  words = await wordsOf(name);
  chosen = name;
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
  remember("sluice.language", chosen);
}

export const t = (key, values = {}) => (words[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
