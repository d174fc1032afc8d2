// What counts on between two events of a run: the time that has passed, and the money.
const began = new WeakMap();

document.addEventListener("htmx:after:swap", again);
again();
setInterval(tick, 1000);

// What the server says is true at the moment in which it arrives.
function again() {
  for (const place of document.querySelectorAll("[data-ticks], [data-usd]")) {
    const said = place.dataset.ticks ?? place.dataset.usd;
    if (began.get(place)?.said !== said) began.set(place, { said, at: performance.now() });
  }
}

function tick() {
  for (const place of document.querySelectorAll("[data-ticks]")) {
    place.textContent = elapsed(Number(place.dataset.ticks) + passed(place));
  }
  for (const place of document.querySelectorAll("[data-usd]")) {
    const sum = Number(place.dataset.usd) + passed(place) * Number(place.dataset.usdPerS);
    place.textContent = sum > 0 && sum < 0.01 ? `$${sum.toFixed(4)}` : `$${sum.toFixed(2)}`;
  }
}

function passed(place) {
  return (performance.now() - (began.get(place)?.at ?? performance.now())) / 1000;
}

function elapsed(seconds) {
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole}s`;
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
}
