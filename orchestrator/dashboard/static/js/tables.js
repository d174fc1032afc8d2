// Tables that fit lose their inner scrolling, so that their heads stay in sight on the page.
const watched = new WeakSet();
const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) fit(entry.target);
});

export function fitTables(root = document) {
  for (const box of root.querySelectorAll(".scroll")) {
    fit(box);
    if (watched.has(box)) continue;
    watched.add(box);
    sizes.observe(box);
  }
}

function fit(box) {
  const table = box.querySelector("table");
  if (!table) return;
  const fits = table.scrollWidth <= box.clientWidth + 1;
  box.classList.toggle("fits", fits);
  // Only what scrolls needs to be reached by the keyboard.
  if (fits) box.removeAttribute("tabindex");
  else box.tabIndex = 0;
}
