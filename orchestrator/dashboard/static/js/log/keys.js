// Keys of the log: n and N, f, g and G, Home and End; in its box also those that scroll, as a
// browser glides to where they lead, and a key that follows would not end where it should. The
// slash is every page's.
import { kept } from "../kept.js";

const TWICE_MS = 600;

export function offerLogKeys(view, search) {
  let goneAt = -Infinity;
  // Before the page's own: there, g begins the way to another page. Alone it is the top of the
  // log, and twice it is no way to anywhere.
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || kept("keys-off") !== null) return;
      if (event.target.matches?.("input, select, textarea") || document.querySelector("dialog[open]")) return;
      if (event.key === "Shift") return;
      const isSecond = event.timeStamp - goneAt < TWICE_MS;
      goneAt = event.key === "g" ? event.timeStamp : -Infinity;
      if (event.key === "g") {
        if (isSecond) event.preventDefault();
        view.toTop();
        return;
      }
      if (isSecond && event.key.length === 1 && !"G ".includes(event.key)) return;
      const action = {
        j: () => view.step(1),
        k: () => view.step(-1),
        G: () => view.toEnd(),
        // A browser glides there over a million lines, and where the bar is put right it stops.
        Home: () => view.toTop(),
        End: () => view.toEnd(),
        n: () => search.go("next"),
        N: () => search.go("previous"),
        e: () => view.toFailure(),
        f: () => view.follow(!view.follows),
        ...(view.box.contains(event.target) && scrolling(view, event.shiftKey)),
      }[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    },
    { capture: true },
  );
}

function scrolling(view, isBack) {
  return {
    ArrowUp: () => view.scroll(-1),
    ArrowDown: () => view.scroll(1),
    PageUp: () => view.scroll(-view.page),
    PageDown: () => view.scroll(view.page),
    " ": () => view.scroll(isBack ? -view.page : view.page),
  };
}
