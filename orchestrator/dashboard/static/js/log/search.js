// Searches a log: the server looks, piece by piece, and the page marks what is in sight.
const MOST_MARKS = 50;

export class Search {
  constructor(form, view) {
    this.form = form;
    this.view = view;
    this.field = form.elements.find;
    this.said = form.querySelector("[role='status']");
    this.running = undefined;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.go(event.submitter?.value === "previous" ? "previous" : "next");
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !event.shiftKey) return;
      event.preventDefault();
      this.go("previous");
    });
    this.field.addEventListener("input", () => this.marks());
    form.elements.case.addEventListener("change", () => this.marks());
  }

  get text() {
    return this.field.value;
  }

  get minds() {
    return this.form.elements.case.checked;
  }

  // Where the text is in a line.
  places(line) {
    const needle = this.minds ? this.text : this.text.toLowerCase();
    // A letter may become two in small: then places in both texts would differ.
    const small = this.minds ? line : line.toLowerCase();
    if (!needle || small.length !== line.length) return [];
    const found = [];
    let at = small.indexOf(needle);
    while (at >= 0 && found.length < MOST_MARKS) {
      found.push([at, at + needle.length]);
      at = small.indexOf(needle, at + needle.length);
    }
    return found;
  }

  marks() {
    this.said.textContent = "";
    this.view.redraw();
  }

  // Goes on until it is found, or all was searched; from the other end then, once.
  async go(direction) {
    this.running?.abort();
    if (!this.text) {
      this.field.focus();
      return;
    }
    const stop = new AbortController();
    this.running = stop;
    const begin = this.view.chosen;
    try {
      const found = await this.from(begin, direction, stop.signal, 0);
      if (found) return this.tell(found, "");
      if (!begin) return this.tell(undefined, "Not in this log.");
      const end = await this.from(0, direction, stop.signal, begin);
      const round = direction === "next" ? "From the top." : "From the end.";
      this.tell(end, end === undefined ? "Not in this log." : end === begin ? "The only one." : round);
    } catch (error) {
      if (error.name !== "AbortError") this.said.textContent = `Not searched: ${error.message}`;
    }
  }

  async from(line, direction, signal, last) {
    const isDown = direction === "next";
    let at = line;
    for (;;) {
      const query = { find: this.text, go: direction, line: at, count: 1, from: 1 };
      if (this.minds) query.case = 1;
      const { found } = await this.view.lines.ask(query, signal);
      if (found.line !== null) return found.line;
      if (found.is_over) return undefined;
      at = found.reached;
      if (last && (isDown ? at >= last : at <= last)) return undefined;
      this.said.textContent = `Searching: line ${at.toLocaleString("en")} of ${this.view.lines.total.toLocaleString("en")}`;
    }
  }

  tell(line, words) {
    this.said.textContent = words;
    if (line) this.view.choose(line);
  }
}
