// Hears of what is new: one stream of events, which takes up where it was cut off. It only says
// that there is more; the lines themselves are asked for by their numbers, so that none is lost
// or comes twice.
const AGAIN_MS = 1000;
const AGAIN_MOST_MS = 15000;

export class Stream {
  constructor(address, heard, told) {
    this.address = new URL(address, location.href);
    this.heard = heard;
    this.told = told;
    this.wait = AGAIN_MS;
    this.hasEnded = false;
    // A browser has few connections for one host: a tab that nobody sees needs none.
    document.addEventListener("visibilitychange", () => this.look());
    addEventListener("online", () => this.again());
    addEventListener("offline", () => this.told("lost"));
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", (event) => event.persisted && this.look());
    this.look();
  }

  look() {
    if (document.hidden) this.close();
    else if (!this.source && !this.hasEnded) this.open();
  }

  open() {
    this.source = new EventSource(this.address);
    this.source.addEventListener("open", () => {
      this.wait = AGAIN_MS;
      this.told("live");
      this.heard({});
    });
    this.source.addEventListener("error", () => this.lost());
    for (const kind of ["log", "cell", "run"]) {
      this.source.addEventListener(kind, (event) => this.take(event));
    }
    this.source.addEventListener("end", () => this.end());
  }

  take(event) {
    if (event.lastEventId) this.address.searchParams.set("after", event.lastEventId);
    this.heard(JSON.parse(event.data));
  }

  end() {
    this.hasEnded = true;
    this.close();
    this.told("ended");
    this.heard({});
  }

  again() {
    if (this.hasEnded) return;
    this.close();
    this.look();
  }

  lost() {
    if (this.hasEnded) return;
    this.told("lost");
    // The browser tries again by itself, unless the answer was no stream.
    if (this.source?.readyState !== EventSource.CLOSED) return;
    this.close();
    setTimeout(() => this.look(), this.wait);
    this.wait = Math.min(this.wait * 2, AGAIN_MOST_MS);
  }

  close() {
    this.source?.close();
    this.source = undefined;
  }
}
