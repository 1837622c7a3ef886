// Light and dark: as the system says until the button chooses; the choice is kept where the browser allows it.
import { html } from "./dom.js";

const KEY = "edgecut-theme";
const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

function kept(value) {
  try {
    if (value) localStorage.setItem(KEY, value);
    return localStorage.getItem(KEY);
  } catch {
    return null; // Files opened from a disk may have no storage.
  }
}

export function themeButton() {
  const before = kept();
  if (before === "dark" || before === "light") document.documentElement.dataset.theme = before;
  const button = html("button", { id: "theme", type: "button" });
  const label = () => { button.textContent = isDark() ? "Light theme" : "Dark theme"; };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = kept(isDark() ? "light" : "dark") ?? (isDark() ? "light" : "dark");
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  label();
  return button;
}
