// Every word on the page comes from here: t("key", {name: value}) in the language chosen.

import en from "./messages/en.js";
import zh from "./messages/zh.js";

const LANGUAGES = { en, zh };
let chosen = "en";

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch { /* it holds until the page is left */ }
}

export const language = () => chosen;

export function setLanguage(name) {
  chosen = name in LANGUAGES ? name : "en";
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
  remember("sluice.language", chosen);
}

chosen = stored("sluice.language") || ((navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en");
if (!(chosen in LANGUAGES)) chosen = "en";
document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";

export const has = (key) => key in en;

export function t(key, values = {}) {
  const text = LANGUAGES[chosen][key] ?? en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}
