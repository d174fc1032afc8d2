// The button that goes from the system's scheme to light, to dark, and back.
import { keep, kept } from "./kept.js";

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const WORDS = { auto: "as the system", light: "light", dark: "dark" };

export function offerSchemes() {
  const buttons = document.querySelectorAll("[data-scheme-button]");
  for (const button of buttons) {
    show(button, chosen());
    button.addEventListener("click", () => {
      const scheme = NEXT[chosen()];
      keep("theme", scheme === "auto" ? null : scheme);
      apply(scheme);
      show(button, scheme);
    });
  }
  // The viewer chose in another tab.
  addEventListener("storage", (event) => {
    if (event.key !== "theme") return;
    apply(event.newValue ?? "auto");
    buttons.forEach((button) => show(button, chosen()));
  });
}

function chosen() {
  const theme = document.documentElement.dataset.theme ?? kept("theme");
  return theme === "light" || theme === "dark" ? theme : "auto";
}

function apply(scheme) {
  if (scheme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = scheme;
  // Pictures that are painted, not styled, are painted again.
  document.dispatchEvent(new CustomEvent("seatrial:scheme"));
}

function show(button, scheme) {
  button.dataset.scheme = scheme;
  button.setAttribute("aria-label", `Colours: ${WORDS[scheme]}; change to ${WORDS[NEXT[scheme]]}`);
  button.title = `Colours: ${WORDS[scheme]}`;
}
