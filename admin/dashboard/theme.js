// Before the first paint: the theme and the language that this browser's user chose. "auto" is the system's.
"use strict";
try {
  const theme = localStorage.getItem("sluice.theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch { /* storage is forbidden: the system's theme */ }
