// Parts of a page that are asked for again: what changes while one looks, and what filters find.
import { say } from "./say.js";

const A_PAGE = /^\s*<!doctype/i;

export function guardParts() {
  document.addEventListener("htmx:after:request", checked);
  document.addEventListener("htmx:error", (event) => {
    // Nobody was asked to look: the next change asks again.
    event.detail.ctx.sourceElement?.setAttribute("data-live", "lost");
  });
  document.addEventListener("htmx:after:swap", addressed);
  document.addEventListener("formdata", withoutEmpty);
}

// No page of an error, and no sign-in, takes the place of a part.
function checked(event) {
  const { text, response, select } = event.detail.ctx;
  const isRight = select ? response.status < 400 : !A_PAGE.test(text ?? "");
  if (isRight && !response.raw.redirected) return;
  event.preventDefault();
  if (response.raw.redirected) location.reload();
  else say(`This part is not up to date: the server answered ${response.status}`, "bad");
}

// What a filter shows has an address of its own.
function addressed(event) {
  const { sourceElement, response } = event.detail.ctx;
  if (!sourceElement?.matches("[data-filters]") || !response) return;
  const { pathname, search } = new URL(response.raw.url);
  history.replaceState(null, "", pathname + search);
}

// An address says what was asked for, not what was left open.
function withoutEmpty(event) {
  if (event.target.method !== "get") return;
  for (const [name, value] of [...event.formData]) {
    if (value === "") event.formData.delete(name);
  }
}
