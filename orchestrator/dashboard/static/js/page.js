// What every page does with JavaScript; without it, every page can still be read and used.
import { offerCopies } from "./copy.js";
import { offerKeys } from "./keys.js";
import { follow } from "./live.js";
import { guardParts } from "./parts.js";
import { offerSchemes } from "./scheme.js";
import { fitTables } from "./tables.js";
import { localTimes } from "./times.js";

offerSchemes();
offerCopies();
offerKeys();
guardParts();
follow();
dress();
// What was put on the page later is dressed like the rest.
document.addEventListener("htmx:after:swap", dress);

function dress() {
  localTimes();
  fitTables();
}
