// Before the first paint: the theme and the language that were chosen here; else the system's.
"use strict";
{
  const kept = (name) => {
    try {
      return localStorage.getItem(name);
    } catch {
      return null; // storage is forbidden
    }
  };
  const root = document.documentElement;
  const theme = kept("sluice.theme");
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
  root.lang = (kept("sluice.language") || navigator.language || "en").toLowerCase().startsWith("zh") ? "zh-CN" : "en";
  const words = document.createElement("link");
  words.rel = "modulepreload";
  words.href = `/dashboard/messages/${root.lang.slice(0, 2)}.js`;
  document.head.append(words);
}
