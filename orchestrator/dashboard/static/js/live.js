// Parts of pages that follow what happens: one stream a page, which says that something changed.
// Its parts have hx-trigger="seatrial:changed from:body" and ask for themselves again.
const QUIET_MS = 700;
const AGAIN_MS = 2000;
const AGAIN_MOST_MS = 30000;

export function follow() {
  const source = document.querySelector("[data-events]");
  if (source) new Follower(source).look();
}

class Follower {
  constructor(element) {
    this.element = element;
    this.address = element.dataset.events;
    this.last = "";
    this.wait = AGAIN_MS;
    this.timer = 0;
    // A browser has few connections for one host: a tab that nobody sees needs none.
    document.addEventListener("visibilitychange", () => this.look());
    addEventListener("pagehide", () => this.close());
  }

  look() {
    if (document.hidden) {
      this.close();
    } else if (!this.stream && !this.ended) {
      this.open();
    }
  }

  open() {
    const address = new URL(this.address, location.href);
    if (this.last) address.searchParams.set("after", this.last);
    this.stream = new EventSource(address);
    this.stream.addEventListener("open", () => {
      this.wait = AGAIN_MS;
      this.tell("live");
      // What happened while nobody listened is on the page too.
      if (this.last) this.changed();
    });
    this.stream.addEventListener("error", () => this.lost());
    const { eventKinds = "message", eventEnd } = this.element.dataset;
    for (const kind of new Set([...eventKinds.split(" "), eventEnd ?? "message"])) {
      this.stream.addEventListener(kind, (event) => this.heard(event));
    }
  }

  heard(event) {
    if (event.lastEventId) this.last = event.lastEventId;
    if (event.type === this.element.dataset.eventEnd) {
      this.ended = true;
      this.close();
      this.tell("ended");
    }
    this.changed();
  }

  changed() {
    if (this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      document.body.dispatchEvent(new CustomEvent("seatrial:changed"));
    }, QUIET_MS);
  }

  lost() {
    this.tell("lost");
    // The browser tries again by itself, unless the answer was no stream.
    if (this.stream?.readyState !== EventSource.CLOSED) return;
    this.close();
    setTimeout(() => this.look(), this.wait);
    this.wait = Math.min(this.wait * 2, AGAIN_MOST_MS);
  }

  close() {
    this.stream?.close();
    this.stream = undefined;
  }

  tell(state) {
    this.element.dataset.live = state;
  }
}
