// Helps with the form, which works without: fields that the choice of a source asks for, the place
// of a mistake in the text, a matrix that is read from a file, and one click that counts.
const form = document.querySelector("form[data-once]");
const source = document.getElementById("source");
const text = document.getElementById("text");

source?.addEventListener("change", offer);
offer();

function offer() {
  for (const field of document.querySelectorAll("[data-for]")) {
    field.hidden = !field.dataset.for.split(" ").includes(source?.value ?? "");
  }
}

form?.addEventListener("submit", (event) => {
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "1";
});
// Who comes back to the page may send it again: the key says that it is the same.
addEventListener("pageshow", () => delete form?.dataset.sent);

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-line]");
  if (!link || !text) return;
  event.preventDefault();
  const lines = text.value.split("\n");
  const line = Math.min(Number(link.dataset.line), lines.length);
  const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  text.focus();
  text.setSelectionRange(start, start + lines[line - 1].length);
  const height = Number.parseFloat(getComputedStyle(text).lineHeight) || 20;
  text.scrollTop = Math.max(0, (line - 4) * height);
});
