// The chart of a benchmark's trend: drawn from the page's .json, moved by pointer or arrow keys.
import { paint } from "./trend_paint.js";

const HEIGHT = 320;
const WHEN = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "short" });

for (const figure of document.querySelectorAll("[data-trend]")) show(figure);

async function show(figure) {
  if (typeof uPlot === "undefined") return;
  const answer = await fetch(figure.dataset.trend, { headers: { Accept: "application/json" } });
  if (!answer.ok) return;
  const { chart } = await answer.json();
  if (chart?.points.length) new Trend(figure, chart);
}

class Trend {
  constructor(figure, chart) {
    this.figure = figure;
    this.chart = chart;
    this.at = chart.points.length - 1;
    this.place = made("div", "plot");
    this.place.tabIndex = 0;
    this.place.setAttribute("role", "group");
    this.place.setAttribute("aria-label", "Chart: arrow keys go from run to run, Enter opens one");
    this.readout = made("p", "readout");
    this.spoken = made("p", "for-readers");
    this.spoken.setAttribute("aria-live", "polite");
    figure.querySelector(".still").replaceWith(this.place, this.readout, this.spoken);
    for (const one of figure.querySelectorAll(".scripted")) {
      one.hidden = !chart.points.some((point) => point.samples.length);
    }
    // With the samples, the axis is longer than that of the picture without scripts.
    const [low, high] = chart.y.map(figureOf);
    figure.querySelector("[data-axis]").textContent = `from ${low} to ${high}`;
    this.plot = new uPlot(this.options(), this.data(), this.place);
    this.place.addEventListener("keydown", (event) => this.pressed(event));
    this.place.addEventListener("focus", () => this.go(this.at, true));
    new ResizeObserver(() => this.fit()).observe(this.place);
    // Colours follow the scheme: the window's, or the one that is chosen on the page.
    const redraw = () => this.plot.redraw(false, true);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    const chosen = new MutationObserver(redraw);
    chosen.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    this.tell(this.at);
  }

  data() {
    const { points } = this.chart;
    return [points.map((point) => point.at), points.map((point) => point.value)];
  }

  options() {
    const ink = () => colour(this.place, "--ink-soft");
    const axis = {
      stroke: ink,
      grid: { stroke: () => colour(this.place, "--draw-grid"), width: 1 },
      ticks: { show: false },
    };
    const [low, high] = this.chart.y;
    return {
      width: this.place.clientWidth || 600,
      height: HEIGHT,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, y: false, points: { size: 9 } },
      scales: { x: { time: true, range: () => spread(this.chart.points) }, y: { range: [low, high] } },
      axes: [{ ...axis, values: daysAndTimes }, { ...axis, size: widthOf, values: (_, ticks) => ticks.map(figureOf) }],
      series: [{}, { stroke: () => colour(this.place, "--draw-line"), paths: () => null, points: { show: false } }],
      hooks: {
        drawAxes: [(plot) => paint(plot, this.chart, (name) => colour(this.place, name))],
        setCursor: [(plot) => this.hovered(plot.cursor.idx)],
      },
    };
  }

  fit() {
    const width = this.place.clientWidth;
    if (width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  hovered(at) {
    if (at !== null && at !== undefined) this.tell(at);
  }

  pressed(event) {
    const last = this.chart.points.length - 1;
    const to = {
      ArrowLeft: this.at - 1, ArrowRight: this.at + 1, ArrowUp: this.at + 10,
      ArrowDown: this.at - 10, Home: 0, End: last,
    }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      this.go(Math.max(0, Math.min(last, to)), true);
    } else if (event.key === "Enter") {
      location.assign(this.address(this.at));
    }
  }

  go(at, isSpoken) {
    const left = this.plot.valToPos(this.chart.points[at].at, "x");
    this.plot.setCursor({ left, top: this.plot.bbox.height / 2 / devicePixelRatio }, false);
    this.tell(at);
    if (isSpoken) this.spoken.textContent = this.readout.textContent;
  }

  tell(at) {
    this.at = at;
    const point = this.chart.points[at];
    const value = made("b", "", point.said);
    const link = made("a", "", point.version || point.run);
    link.href = this.address(at);
    const words = [`${at + 1} of ${this.chart.points.length}`, `n = ${point.n}`];
    const change = this.chart.changes.find((one) => one.index === at);
    if (change) words.push(`change point: ${change.said}, p = ${change.p.toPrecision(2)}`);
    const before = this.chart.points[at - 1];
    if (before && before.environment !== point.environment) words.push("another environment");
    const when = made("span", "soft", WHEN.format(new Date(point.at * 1000)));
    const rest = words.map((word) => made("span", "soft", word));
    this.readout.replaceChildren(...spaced([value, link, when, ...rest]));
  }

  address(at) {
    const { runs, cell } = this.figure.dataset;
    const run = encodeURIComponent(this.chart.points[at].run);
    return `${runs}/${run}/cells/${encodeURIComponent(cell)}`;
  }
}

// One run alone, and runs of the same moment, get some room on both sides. The chart's own extremes
// are not asked for: around one point they are years apart.
function spread(points) {
  const [low, high] = [points[0].at, points[points.length - 1].at];
  const room = (high - low) * 0.015 || 43200;
  return [low - room, high + room];
}

// Dates as everywhere: 2026-11-26, and below days the time, with the date where it changes.
function daysAndTimes(_plot, splits, _axis, _space, increment) {
  let last = "";
  return splits.map((at) => {
    const [day, time] = WHEN.format(new Date(at * 1000)).split(" ");
    const isNew = day !== last;
    last = day;
    if (increment >= 86400) return isNew ? day : "";
    return isNew ? `${time}\n${day}` : time;
  });
}

// Pixels of the widest label of the values.
function widthOf(_plot, labels) {
  return Math.max(56, ...(labels ?? []).map((label) => 16 + 7 * label.length));
}

function figureOf(value) {
  if (value && Math.abs(value) < 1e-4) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: 6 });
}

// What a custom property comes to in the present scheme; a canvas needs the plain colour.
function colour(place, name) {
  const probe = made("i", "for-readers");
  probe.style.color = `var(${name})`;
  place.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function made(tag, className, text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

function spaced(elements) {
  return elements.flatMap((element, at) => (at ? [" ", element] : [element]));
}
