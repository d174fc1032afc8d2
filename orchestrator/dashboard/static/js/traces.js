// Long texts are fetched when somebody opens them; what comes is written as text, never as HTML.
document.addEventListener("toggle", opened, true);

async function opened(event) {
  const box = event.target;
  if (!box.matches?.("details[data-load]") || !box.open) return;
  const place = box.querySelector("pre");
  if (!place || place.dataset.loaded) return;
  place.hidden = false;
  place.textContent = "Loading…";
  try {
    const answer = await fetch(box.dataset.load);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    place.textContent = (await answer.json()).shown;
    place.dataset.loaded = "1";
  } catch (error) {
    place.textContent = `Not loaded: ${error.message}`;
  }
}
