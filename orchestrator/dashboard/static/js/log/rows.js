// Rows for the lines in sight, and for no others. Text from machines is only ever a text node.
export class Rows {
  constructor(container, pages, folds) {
    this.folds = folds;
    this.container = container;
    this.pages = pages;
    this.chosen = 0;
    this.mark = () => [];
    container.replaceChildren();
  }

  // Shows the lines of these numbers, which rise; a row that stays is left alone, so that what is selected in
  // it stays selected.
  show(numbers, lineOf) {
    const shown = new Set(numbers);
    for (const row of [...this.container.children]) {
      const number = row.number;
      const isStale = row.line !== lineOf(number);
      if (!shown.has(number) || isStale) row.remove();
    }
    let next = this.container.firstElementChild;
    for (const number of numbers) {
      if (next?.number === number) {
        next = next.nextElementSibling;
      } else {
        this.container.insertBefore(this.make(number, lineOf(number)), next);
      }
    }
  }

  // Makes all rows anew: something about all of them has changed.
  forget() {
    this.container.replaceChildren();
  }

  // Rows stay: a click that has begun on one of them ends on it.
  choose(number) {
    this.chosen = number;
    for (const row of this.container.children) this.markChosen(row);
  }

  markChosen(row) {
    const isChosen = row.number === this.chosen;
    row.classList.toggle("chosen", isChosen);
    if (isChosen) row.firstElementChild.setAttribute("aria-current", "true");
    else row.firstElementChild.removeAttribute("aria-current");
  }

  make(number, line) {
    const row = document.createElement("div");
    row.className = "log-row";
    row.id = `L${number}`;
    row.number = number;
    row.line = line;
    const link = document.createElement("a");
    link.className = "log-number";
    link.href = this.pages.line(number);
    link.tabIndex = -1;
    link.textContent = number;
    row.append(link, this.text(number, line));
    const section = this.folds.startsAt(number);
    if (section) row.insertBefore(this.toggle(section), row.lastElementChild);
    this.markChosen(row);
    return row;
  }

  toggle(section) {
    const isFolded = this.folds.isFolded(section.first);
    const button = document.createElement("button");
    button.type = "button";
    button.className = "log-fold";
    button.textContent = isFolded ? "▸" : "▾";
    button.setAttribute("aria-expanded", String(!isFolded));
    button.setAttribute("aria-label", `Lines of ${section.job}`);
    return button;
  }

  text(number, line) {
    const place = document.createElement("span");
    place.className = "log-text";
    if (line === undefined) {
      place.textContent = "…";
      return place;
    }
    for (const [text, style] of marked(line.parts, this.mark)) {
      if (!style) {
        place.append(text);
        continue;
      }
      const part = document.createElement(style === MARK ? "mark" : "span");
      if (style !== MARK) part.className = style;
      part.textContent = text;
      place.append(part);
    }
    if (line.size_bytes !== undefined) place.append(" ", this.whole(number, line));
    return place;
  }

  whole(number, line) {
    const link = document.createElement("a");
    link.className = "log-whole";
    link.href = this.pages.whole(number);
    link.textContent = `whole line, ${sizeOf(line.size_bytes)}`;
    return link;
  }
}

const MARK = "mark";

// The parts, cut where what is searched for begins and ends.
function* marked(parts, mark) {
  const found = mark(parts.map(([text]) => text).join(""));
  if (!found.length) {
    yield* parts;
    return;
  }
  let at = 0;
  for (const [text, style] of parts) {
    const end = at + text.length;
    let from = at;
    for (const [begin, stop] of found) {
      if (stop <= from || begin >= end) continue;
      if (begin > from) yield [text.slice(from - at, begin - at), style];
      yield [text.slice(Math.max(begin, from) - at, Math.min(stop, end) - at), MARK];
      from = Math.min(stop, end);
    }
    if (from < end) yield [text.slice(from - at), style];
    at = end;
  }
}

export function sizeOf(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB"];
  let amount = bytes / 1000;
  while (amount >= 999.95 && units.length > 1) {
    amount /= 1000;
    units.shift();
  }
  return `${amount.toFixed(1)} ${units[0]}`;
}
