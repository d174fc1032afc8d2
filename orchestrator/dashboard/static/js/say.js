// Tells people, and readers of the screen, what has just happened; it leaves by itself.
const STAYS_MS = 6000;

export function say(words, tone = "quiet") {
  const place = document.getElementById("said");
  if (place === null) return;
  const said = document.createElement("p");
  said.className = `toast ${tone}`;
  said.textContent = words;
  place.append(said);
  let timer = setTimeout(() => said.remove(), STAYS_MS);
  said.addEventListener("pointerenter", () => clearTimeout(timer));
  said.addEventListener("pointerleave", () => {
    timer = setTimeout(() => said.remove(), STAYS_MS / 2);
  });
}
