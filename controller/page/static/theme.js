// Light, dark, or as the system says. Loaded before the page is drawn, so that nothing flashes.
"use strict";

(() => {
  const THEMES = ["auto", "light", "dark"];
  const KEY = "longhorn-scheduler-theme";

  function stored() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // Storage may be off.
    }
  }

  function show(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
  }

  let theme = THEMES.includes(stored()) ? stored() : "auto";
  show(theme);
  document.addEventListener("DOMContentLoaded", () => {
    show(theme);
    document.getElementById("theme").addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // It then holds until the page is closed.
      }
      show(theme);
    });
  });
})();
