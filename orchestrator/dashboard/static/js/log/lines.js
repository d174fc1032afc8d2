// The lines that are at hand, in blocks; those that nobody looks at are forgotten.
const BLOCK = 200;
const MOST_BLOCKS = 60;

export class Lines {
  constructor(address, attempt, arrived) {
    this.address = address;
    this.attempt = attempt;
    this.arrived = arrived;
    this.blocks = new Map();
    this.asked = new Map();
    this.total = 0;
    this.hasOpenLine = false;
    this.size = 0;
    this.isOver = false;
    this.isDone = false;
    this.attempts = [];
    this.sections = [];
  }

  // What is known of a line; undefined where it is not at hand.
  get(number) {
    const block = this.blocks.get(blockOf(number));
    return block?.[(number - 1) % BLOCK];
  }

  // Has the lines from a number to another, and tells when they come.
  want(first, last) {
    for (let at = blockOf(first); at <= blockOf(last); at++) {
      const block = this.blocks.get(at);
      const due = Math.min(BLOCK, this.total - at * BLOCK);
      if (block) this.keep(at, block);
      if (due > (block?.length ?? 0) && !this.asked.has(at)) this.load(at);
    }
  }

  async load(at) {
    const stop = new AbortController();
    this.asked.set(at, stop);
    try {
      await this.ask({ from: at * BLOCK + 1, count: BLOCK }, stop.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.failed?.(error);
    } finally {
      if (this.asked.get(at) === stop) this.asked.delete(at);
    }
  }

  // What was asked for while somebody dragged the bar along is not waited for.
  drop(first, last) {
    for (const [at, stop] of this.asked) {
      if (at >= blockOf(first) - 1 && at <= blockOf(last) + 1) continue;
      stop.abort();
      this.asked.delete(at);
    }
  }

  // What is new after the lines that are known; the last of them may have grown.
  refresh() {
    const from = Math.max(1, this.total + (this.hasOpenLine ? 0 : 1));
    return this.ask({ from, count: BLOCK });
  }

  async ask(query, signal) {
    const address = new URL(this.address, location.href);
    for (const [name, value] of Object.entries({ attempt: this.attempt, ...query })) {
      address.searchParams.set(name, value);
    }
    // It is asked for when there is news, which an answer that the server has kept may lack.
    const answer = await fetch(address, { signal, cache: "reload" });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const told = await answer.json();
    this.take(told);
    return told;
  }

  take(told) {
    if (told.total < this.total) this.blocks.clear();
    // Answers may overtake each other: an older one knows less.
    if (told.size_bytes >= this.size) {
      this.total = told.total;
      this.size = told.size_bytes;
      this.hasOpenLine = told.has_open_line;
      this.isOver = told.is_over;
      this.isDone = told.is_done;
      this.attempts = told.attempts;
      this.sections = told.sections;
      for (const line of told.lines) this.put(line);
    } else {
      for (const line of told.lines) if (!this.get(line.line)) this.put(line);
    }
    this.arrived();
  }

  put(line) {
    const at = blockOf(line.line);
    const block = this.blocks.get(at) ?? [];
    const place = (line.line - 1) % BLOCK;
    // A block has no holes: what does not join on is asked for with its block.
    if (place > block.length) return;
    block[place] = line;
    this.keep(at, block);
  }

  keep(at, block) {
    this.blocks.delete(at);
    this.blocks.set(at, block);
    if (this.blocks.size > MOST_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
  }
}

function blockOf(number) {
  return Math.floor((number - 1) / BLOCK);
}
