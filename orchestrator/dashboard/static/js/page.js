// What every page does with JavaScript; without it, every page can still be read and used.
import { offerCopies } from "./copy.js";
import { offerKeys } from "./keys.js";
import { follow } from "./live.js";
import { offerSchemes } from "./scheme.js";
import { fitTables } from "./tables.js";
import { localTimes } from "./times.js";

offerSchemes();
offerKeys();
follow();
dress();
// What htmx has put on the page is dressed like the rest.
document.addEventListener("htmx:after:swap", dress);

function dress() {
  offerCopies();
  localTimes();
  fitTables();
}
