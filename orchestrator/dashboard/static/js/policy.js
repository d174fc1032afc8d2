// From a problem of a policy to its place in the text that is edited.
const text = document.getElementById("policy");

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-line]");
  if (!link || !text) return;
  event.preventDefault();
  show(Number(link.dataset.line), Number(link.dataset.column));
});

function show(line, column) {
  const lines = text.value.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  const end = before + (lines[line - 1]?.length ?? 0);
  text.focus();
  text.setSelectionRange(Math.min(before + column - 1, end), end);
  text.scrollTop = (text.scrollHeight / lines.length) * Math.max(line - 6, 0);
}
