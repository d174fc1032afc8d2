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

// A folder is sent without what is not packed anyway.
const LEFT_OUT = [".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"];
document.getElementById("folder")?.addEventListener("change", (event) => {
  const files = [...event.target.files];
  const parent = (file) => file.webkitRelativePath.replace(/[^/]*$/, "");
  const environments = files.filter((file) => file.name === "pyvenv.cfg").map(parent);
  const kept = new DataTransfer();
  for (const file of files) {
    const path = file.webkitRelativePath;
    const cached = path.split("/").some((part) => LEFT_OUT.includes(part));
    if (!cached && !environments.some((folder) => path.startsWith(folder))) kept.items.add(file);
  }
  event.target.files = kept.files;
});

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
