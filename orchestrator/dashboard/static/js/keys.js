// The keyboard: g and a letter, / for the filter, j and k or arrows in tables, ? for all of it.
import { keep, kept } from "./kept.js";
import { move } from "./moving.js";
import { zoneName } from "./times.js";

const WAITS_MS = 1500;
const OFF = "keys-off";
let waitsUntil = 0;

export function offerKeys() {
  const box = document.getElementById("keys");
  if (!box) return;
  for (const button of document.querySelectorAll("[data-keys]")) {
    button.addEventListener("click", () => box.showModal());
  }
  for (const place of box.querySelectorAll("[data-zone]")) place.textContent = zoneName();
  offerSilence(box);
  document.addEventListener("keydown", (event) => pressed(event, box));
}

// Who dictates, or presses keys by mistake, must be able to turn single letters off.
function offerSilence(box) {
  const choice = box.querySelector("[data-keys-off]");
  if (!choice) return;
  choice.checked = kept(OFF) === null;
  choice.addEventListener("change", () => keep(OFF, choice.checked ? null : "1"));
}

function pressed(event, box) {
  if (event.defaultPrevented) waitsUntil = 0; // it meant something else
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || box.open) return;
  if (types(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (move(event) || kept(OFF) !== null) return;
  if (event.timeStamp < waitsUntil) {
    waitsUntil = 0;
    go(event);
  } else if (event.key === "g") {
    waitsUntil = event.timeStamp + WAITS_MS;
  } else if (event.key === "/") {
    const filter = document.querySelector("[data-filter], main input[type='search']");
    if (filter) {
      event.preventDefault();
      filter.focus();
      filter.select?.();
    }
  } else if (event.key === "?") {
    event.preventDefault();
    box.showModal();
  }
}

function go(event) {
  const link = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
  if (!link) return;
  event.preventDefault();
  link.click();
}

function types(target) {
  return target.isContentEditable || target.matches?.("input, select, textarea");
}
