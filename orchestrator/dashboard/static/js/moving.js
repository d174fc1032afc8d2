// Moving in tables: from row to row in a list, from cell to cell in a grid.
import { kept } from "./kept.js";

const DOWN = new Set(["j", "ArrowDown"]);
const UP = new Set(["k", "ArrowUp"]);
const LINK = "a[href], button:not([hidden]), summary";

export function move(event) {
  const at = document.activeElement?.closest?.("tbody tr");
  const isLetter = event.key === "j" || event.key === "k";
  if (isLetter && kept("keys-off") !== null) return false;
  if (!at && !isLetter) return false;
  const table = at?.closest("table") ?? document.querySelector("main table");
  if (!table) return false;
  const goal = table.matches("[data-grid]") ? inGrid(event.key, table, at) : inList(event.key, table, at);
  if (!goal) return false;
  event.preventDefault();
  focus(goal, table);
  return true;
}

function inList(key, table, at) {
  const row = step(key, table, at);
  return row && (row.querySelector(LINK) ?? row);
}

function inGrid(key, table, at) {
  const cell = document.activeElement?.closest("td, th");
  if (!at || !cell) return reachable(step(key, table, at)?.cells[0]);
  const column = [...at.cells].indexOf(cell);
  if (key === "ArrowRight") return reachable(at.cells[column + 1]);
  if (key === "ArrowLeft") return reachable(at.cells[column - 1]);
  if (key === "Home") return reachable(at.cells[0]);
  if (key === "End") return reachable(at.cells[at.cells.length - 1]);
  return reachable(step(key, table, at)?.cells[column]);
}

function step(key, table, at) {
  const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
  const here = rows.indexOf(at);
  if (DOWN.has(key)) return rows[here + 1];
  if (UP.has(key)) return here > 0 ? rows[here - 1] : undefined;
  return undefined;
}

function reachable(cell) {
  return cell && (cell.querySelector(LINK) ?? cell);
}

function focus(goal, table) {
  if (!goal.matches(LINK)) goal.tabIndex = -1;
  goal.focus();
  if (table.matches("[data-grid]")) rove(table, goal);
  goal.scrollIntoView({ block: "nearest", inline: "nearest" });
}

// One stop for the tabulator in a whole grid: the cell that was looked at last.
function rove(table, goal) {
  for (const link of table.querySelectorAll(`tbody :is(${LINK})`)) {
    link.tabIndex = link === goal ? 0 : -1;
  }
}
