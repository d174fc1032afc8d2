// Which lines are hidden: those of a folded job below its heading. Rows are counted without them.
export class Folds {
  constructor() {
    this.sections = [];
    this.folded = new Set();
    this.hidden = [];
  }

  // What the server says of the jobs' lines; the last one may have grown.
  take(sections) {
    this.sections = sections ?? [];
    this.count();
  }

  count() {
    this.hidden = this.sections
      .filter((one) => this.folded.has(one.first) && one.last > one.first)
      .map((one) => [one.first + 1, one.last]);
  }

  startsAt(line) {
    return this.sections.find((one) => one.first === line);
  }

  isFolded(line) {
    return this.folded.has(line);
  }

  toggle(line) {
    if (!this.folded.delete(line)) this.folded.add(line);
    this.count();
  }

  all(yes) {
    this.folded = new Set(yes ? this.sections.map((one) => one.first) : []);
    this.count();
  }

  // Unfolds what hides a line; whether there was something.
  open(line) {
    const over = this.sections.find((one) => line > one.first && line <= one.last);
    if (!over || !this.folded.delete(over.first)) return false;
    this.count();
    return true;
  }

  // So many rows have so many lines.
  rows(total) {
    return this.hidden.reduce((rows, [first, last]) => rows - Math.max(0, Math.min(last, total) - first + 1), total);
  }

  lineOf(row) {
    let line = row;
    for (const [first, last] of this.hidden) if (line >= first) line += last - first + 1;
    return line;
  }

  rowOf(line) {
    let row = line;
    for (const [first, last] of this.hidden) {
      if (line > last) row -= last - first + 1;
      else if (line >= first) row -= line - first + 1;
    }
    return row;
  }
}
