// Scrolls over more lines than a browser has room for: no element may be taller than some ten
// million points. The bar stands for the whole log; small steps are steps of lines all the same.
const TALLEST = 4_000_000;
// At both ends of the log a point of the bar is a point of the log.
const EXACT = 100_000;
const STILL_MS = 150;
// A wheel's glide goes on for so long, wherever the bar is put meanwhile.
const GLIDE_MS = 300;

export class Scroller {
  constructor(box, rowHeight, moved) {
    this.box = box;
    this.rowHeight = rowHeight;
    this.moved = moved;
    this.total = 0;
    this.top = 0;
    this.height = 0;
    this.known = 0;
    this.still = 0;
    this.turnedAt = -Infinity;
    this.isHeld = false;
    this.space = ruleOf(".log-space");
    this.rows = ruleOf(".log-rows");
    box.addEventListener("scroll", () => this.scrolled(), { passive: true });
    for (const kind of ["wheel", "pointerdown"]) {
      box.addEventListener(kind, (event) => this.taken(event), { passive: true });
    }
    new ResizeObserver(() => this.resized()).observe(box);
    this.view = box.clientHeight;
  }

  get most() {
    return Math.max(0, this.total * this.rowHeight - this.view);
  }

  get isAtEnd() {
    return this.top >= this.most - this.rowHeight / 2;
  }

  get firstLine() {
    return Math.floor(this.top / this.rowHeight) + 1;
  }

  get visibleLines() {
    return Math.ceil(this.view / this.rowHeight) + 1;
  }

  get wholeLines() {
    return Math.floor(this.view / this.rowHeight);
  }

  // Rows from a line on lie where that line is, to the point.
  place(firstLine) {
    this.rows.transform = `translateY(${(firstLine - 1) * this.rowHeight - this.top}px)`;
  }

  setTotal(total) {
    if (total === this.total && this.height) return;
    this.total = total;
    this.height = Math.min(total * this.rowHeight, TALLEST);
    this.space.height = `${this.height}px`;
    this.put();
  }

  toLine(line) {
    this.to((line - 1) * this.rowHeight - (this.view - this.rowHeight) / 2);
  }

  toFirst(line) {
    this.to((line - 1) * this.rowHeight);
  }

  toEnd() {
    this.to(this.most);
  }

  // As the log grows; nobody has asked for it, and a hand on the wheel goes on.
  stayAtEnd() {
    const isHeld = this.isHeld;
    this.toEnd();
    this.isHeld = isHeld;
  }

  by(lines) {
    this.to(this.top + lines * this.rowHeight);
  }

  to(top) {
    this.top = Math.min(Math.max(0, top), this.most);
    this.isHeld = true;
    this.put();
    this.moved(false);
  }

  // The reader's hand is on it again.
  taken(event) {
    if (event.type === "wheel") this.turnedAt = performance.now();
    this.isHeld = false;
  }

  // Puts the bar where it belongs; that is no scrolling of the reader's.
  put() {
    const place = this.toBar(this.top);
    if (Math.abs(place - this.box.scrollTop) >= 1) this.box.scrollTop = place;
    this.known = this.box.scrollTop;
  }

  get isExact() {
    return this.total * this.rowHeight <= TALLEST;
  }

  scrolled() {
    const place = this.box.scrollTop;
    const step = place - this.known;
    if (!step) return;
    if (this.isHeld && performance.now() - this.turnedAt < GLIDE_MS) {
      this.put();
      return;
    }
    this.known = place;
    const isJump = this.isExact || Math.abs(step) > 2 * this.view;
    const top = isJump ? this.fromBar(place) : this.top + step;
    this.top = Math.min(Math.max(0, top), this.most);
    this.moved(true, step);
    if (this.isExact) return;
    clearTimeout(this.still);
    const isNearEdge = place < this.view || place > this.height - 2 * this.view;
    if (isNearEdge) this.put();
    else this.still = setTimeout(() => this.put(), STILL_MS);
  }

  resized() {
    const wasAtEnd = this.isAtEnd;
    this.view = this.box.clientHeight;
    if (wasAtEnd) this.top = this.most;
    this.top = Math.min(this.top, this.most);
    this.put();
    this.moved(false);
  }

  toBar(top) {
    if (this.isExact || top <= EXACT) return top;
    const left = this.most - top;
    const end = this.height - this.view;
    if (left <= EXACT) return end - left;
    return EXACT + ((top - EXACT) * (end - 2 * EXACT)) / (this.most - 2 * EXACT);
  }

  fromBar(place) {
    if (this.isExact || place <= EXACT) return place;
    const end = this.height - this.view;
    if (end - place <= EXACT) return this.most - (end - place);
    return EXACT + ((place - EXACT) * (this.most - 2 * EXACT)) / (end - 2 * EXACT);
  }
}

// A rule of a sheet of our own: the policy allows no style of an element's own.
function ruleOf(selector) {
  const sheet = new CSSStyleSheet();
  sheet.insertRule(`${selector} {}`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  return sheet.cssRules[0].style;
}
