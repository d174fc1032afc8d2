// "Copy as Markdown", as the server says how it reads; and copying of what stands on the page.
import { say } from "./say.js";

const BUTTONS = "button[data-copy], button[data-copy-text]";

export function offerCopies() {
  document.addEventListener("click", clicked);
}

async function clicked(event) {
  const button = event.target.closest?.(BUTTONS);
  if (!button) return;
  try {
    await put(button.dataset.copyText ?? (await fetched(button.dataset.copy)));
    say("copyText" in button.dataset ? "Copied" : "Copied as Markdown", "good");
  } catch (error) {
    say(`Not copied: ${error.message}`, "bad");
  }
}

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.text();
}

async function put(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Over plain HTTP from another computer, browsers offer no clipboard but this.
  const area = document.createElement("textarea");
  area.className = "offstage";
  area.value = text;
  const before = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus();
  if (!done) throw new Error("the browser refused");
}
