// A log of any length: only the lines in sight are on the page, and new ones come by themselves.
import { offerLogKeys } from "./log/keys.js";
import { Folds } from "./log/folds.js";
import { Lines } from "./log/lines.js";
import { Rows, sizeOf } from "./log/rows.js";
import { Scroller } from "./log/scroll.js";
import { Search } from "./log/search.js";
import { Stream } from "./log/stream.js";

const AGAIN_MS = 1500;
const WORDS = { "": "", live: "● live", lost: "connection lost; trying again", ended: "ended" };

class View {
  constructor(section) {
    this.section = section;
    const find = (name) => section.querySelector(`[data-${name}]`);
    [this.box, this.fresh] = [find("box"), find("new")];
    [this.state, this.count, this.button] = [find("state"), find("count"), find("follow")];
    const { log, page, attempt, total, open, size, sections } = section.dataset;
    this.pages = addresses(page, attempt);
    const rowHeight = heightOfRow(this.box);
    this.folds = new Folds();
    this.rows = new Rows(find("rows"), this.pages, this.folds);
    this.lines = new Lines(log, attempt, () => this.changed());
    Object.assign(this.lines, { total: Number(total), size: Number(size), hasOpenLine: open === "yes" });
    this.lines.sections = JSON.parse(sections);
    this.folds.take(this.lines.sections);
    this.lines.failed = () => this.later();
    section.classList.add("windowed");
    this.scroller = new Scroller(this.box, rowHeight, (isTheirs, step) => this.moved(isTheirs, step));
    this.seen = this.lines.total;
    this.search = new Search(section.querySelector("form"), this);
    this.rows.mark = (text) => this.search.places(text);
    this.follows = false;
    this.asking = undefined;
    this.frame = 0;
    this.timer = 0;
    this.begin();
  }

  begin() {
    const { stream, line } = this.section.dataset;
    const asked = Number(line || /^#L(\d+)$/.exec(location.hash)?.[1] || 0);
    this.scroller.setTotal(this.folds.rows(this.lines.total));
    this.follow(Boolean(stream) && !asked);
    if (asked) this.choose(asked, false);
    else this.scroller.toEnd();
    offerLogKeys(this, this.search);
    this.fresh.addEventListener("click", () => this.toEnd());
    this.button?.addEventListener("click", () => this.follow(!this.follows));
    this.box.addEventListener("click", (event) => this.clicked(event));
    this.jobs = this.section.querySelector("[data-jobs]");
    this.jobs?.addEventListener("click", (event) => this.jobClicked(event));
    addEventListener("hashchange", () => this.choose(Number(/^#L(\d+)$/.exec(location.hash)?.[1] || 0)));
    if (stream) this.stream = new Stream(stream, (event) => this.heard(event), (state) => this.tell(state));
    this.draw();
  }

  get chosen() {
    return this.rows.chosen;
  }

  // Something happened; of this log, or of something else in the run.
  heard(event) {
    const isOurs = !event.cell || event.cell === this.section.dataset.cell;
    if (isOurs && !this.lines.isDone) this.refresh();
  }

  // One question at a time; what is said meanwhile is asked once more.
  async refresh() {
    if (this.asking) {
      this.isMore = true;
      return;
    }
    this.asking = true;
    try {
      do {
        this.isMore = false;
        await this.lines.refresh();
      } while (this.isMore);
      this.isOver = this.lines.isOver;
      if (this.isOver) this.over();
      if (this.lines.isDone) this.stream?.end();
    } catch {
      this.later();
    } finally {
      this.asking = false;
    }
  }

  over() {
    if (this.button) this.button.hidden = true;
    this.follows = false;
    this.tell("ended");
    const newer = this.lines.attempts.at(-1)?.number ?? 0;
    if (newer <= Number(this.section.dataset.attempt)) return;
    const link = document.createElement("a");
    link.href = `${this.section.dataset.page}?attempt=${newer}`;
    link.textContent = `attempt ${newer} has begun`;
    this.state.replaceChildren("ended; ", link);
  }

  // The server cannot be reached, or is just being started again.
  later() {
    this.tell("lost");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (this.stream) this.refresh();
      this.draw();
    }, AGAIN_MS);
  }

  tell(state) {
    if (this.isOver && state !== "ended") return;
    this.state.dataset.state = state;
    this.state.textContent = WORDS[state];
  }

  changed() {
    this.folds.take(this.lines.sections);
    this.scroller.setTotal(this.folds.rows(this.lines.total));
    if (!this.stream) this.tell("");
    else if (this.stream.source && !this.lines.isOver) this.tell("live");
    if (this.follows) this.scroller.stayAtEnd();
    this.draw();
    const words = this.lines.total === 1 ? "line" : "lines";
    this.count.textContent = `${this.lines.total.toLocaleString("en")} ${words}, ${sizeOf(this.lines.size)}`;
  }

  moved(isTheirs, step) {
    if (isTheirs && this.button && !this.isOver) {
      if (step < 0 && this.follows && !this.scroller.isAtEnd) this.follow(false);
      else if (step > 0 && this.scroller.isAtEnd) this.follow(true);
    }
    this.draw();
  }

  draw() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    this.frame = 0;
    const total = this.lines.total;
    const atEnd = this.scroller.isAtEnd;
    const rows = this.folds.rows(total);
    const count = Math.min(this.scroller.visibleLines, rows);
    const first = Math.min(this.scroller.firstLine, Math.max(1, rows - count + 1));
    const numbers = Array.from({ length: count }, (_, at) => this.folds.lineOf(first + at));
    if (count) {
      this.lines.drop(numbers[0], numbers.at(-1));
      for (const [from, to] of stretches(numbers)) this.lines.want(from, to);
      this.rows.show(numbers, (number) => this.lines.get(number));
      this.scroller.place(first);
    }
    this.section.classList.toggle("at-end", atEnd);
    if (atEnd) this.seen = total;
    const fresh = total - this.seen;
    this.fresh.hidden = fresh <= 0 || this.follows;
    this.fresh.textContent = `${fresh.toLocaleString("en")} new line${fresh === 1 ? "" : "s"}`;
  }

  redraw() {
    this.rows.forget();
    this.draw();
  }

  follow(yes) {
    this.follows = yes && Boolean(this.button) && !this.isOver;
    this.button?.setAttribute("aria-pressed", String(this.follows));
    if (this.follows) this.scroller.toEnd();
  }

  toTop() {
    this.follow(false);
    this.scroller.to(0);
  }

  toEnd() {
    this.scroller.toEnd();
    this.follow(true);
  }

  // So many lines on; two stay in sight from page to page.
  scroll(lines) {
    if (lines < 0) this.follow(false);
    this.scroller.by(lines);
    if (lines > 0 && this.scroller.isAtEnd) this.follow(true);
  }

  get page() {
    return Math.max(1, this.scroller.wholeLines - 2);
  }

  // The line before or after the one that is looked at.
  step(by) {
    const row = this.chosen ? this.folds.rowOf(this.chosen) : this.scroller.firstLine - Math.min(by, 0);
    const rows = this.folds.rows(this.lines.total);
    this.choose(this.folds.lineOf(Math.min(Math.max(1, this.chosen ? row + by : row), rows)));
  }

  // A line to look at, which has an address, in the middle of the box.
  choose(number, isNew = true) {
    if (!number || number > this.lines.total) return;
    this.follow(false);
    if (this.folds.open(number)) this.refold();
    this.rows.choose(number);
    this.scroller.toLine(this.folds.rowOf(number));
    if (isNew) this.address(number);
  }

  address(number) {
    const address = new URL(this.pages.line(number), location.href);
    if (this.search.text) address.searchParams.set("find", this.search.text);
    if (this.search.text && this.search.minds) address.searchParams.set("case", "1");
    history.replaceState(null, "", address);
  }

  // A job is folded or unfolded: its heading stays where it is.
  fold(line) {
    const place = this.folds.rowOf(line) - this.scroller.firstLine;
    this.follow(false);
    this.folds.toggle(line);
    this.refold();
    this.scroller.toFirst(Math.max(1, this.folds.rowOf(line) - place));
  }

  refold() {
    this.scroller.setTotal(this.folds.rows(this.lines.total));
    this.redraw();
  }

  toFailure() {
    this.choose(Number(this.jobs?.querySelector("a.button[data-line]")?.dataset.line || 0));
  }

  jobClicked(event) {
    const link = event.target.closest("a[data-line]");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      this.choose(Number(link.dataset.line));
    }
    const button = event.target.closest("[data-fold]");
    if (!button) return;
    const yes = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(yes));
    this.follow(false);
    this.folds.all(yes);
    this.refold();
    this.scroller.to(0);
  }

  clicked(event) {
    const toggle = event.target.closest("button.log-fold");
    if (toggle) this.fold(toggle.parentElement.number);
    const link = event.target.closest("a.log-number");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    this.follow(false);
    this.rows.choose(link.parentElement.number);
    this.address(link.parentElement.number);
  }
}

// Numbers that follow one another, as the first and the last of each row of them.
function stretches(numbers) {
  const found = [];
  for (const number of numbers) {
    const last = found.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else found.push([number, number]);
  }
  return found;
}

function addresses(page, attempt) {
  const query = `?attempt=${attempt}`;
  return {
    line: (number) => `${page}${query}&line=${number}`,
    whole: (number) => `${page}/lines/${number}${query}`,
  };
}

// As the letters of the viewer's browser make it.
function heightOfRow(box) {
  const row = box.querySelector(".log-row");
  const height = row?.getBoundingClientRect().height;
  return height || parseFloat(getComputedStyle(box).lineHeight);
}

const section = document.querySelector("[data-log]");
if (section) new View(section);
