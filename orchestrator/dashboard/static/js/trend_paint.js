// Everything of a trend's chart but its axes: bands, samples, lines, steps and versions.
const SIZE = 3;

export function paint(plot, chart, colour) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const x = (at) => plot.valToPos(chart.points[at].at, "x", true);
  const y = (value) => plot.valToPos(value, "y", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  bands(ctx, chart, x, y, colour, ratio);
  versions(ctx, chart, x, bbox, colour, ratio);
  samples(ctx, chart, x, y, colour, ratio);
  lines(ctx, chart, x, y, colour, ratio);
  steps(ctx, chart, x, bbox, colour, ratio);
  ctx.restore();
}

function bands(ctx, chart, x, y, colour, ratio) {
  ctx.fillStyle = colour("--draw-band");
  for (const level of chart.levels) {
    const left = x(level.first) - SIZE * ratio;
    const right = x(level.last) + SIZE * ratio;
    ctx.fillRect(left, y(level.high), right - left, Math.max(y(level.low) - y(level.high), ratio));
  }
}

function samples(ctx, chart, x, y, colour, ratio) {
  ctx.fillStyle = colour("--draw-quiet");
  ctx.globalAlpha = 0.55;
  for (const [at, point] of chart.points.entries()) {
    for (const sample of point.samples) dot(ctx, x(at), y(sample), 1.3 * ratio);
  }
  ctx.globalAlpha = 1;
}

// Medians are joined within one environment, never from one to another.
function lines(ctx, chart, x, y, colour, ratio) {
  ctx.strokeStyle = ctx.fillStyle = colour("--draw-line");
  ctx.lineWidth = 1.5 * ratio;
  ctx.lineJoin = "round";
  ctx.beginPath();
  for (const [at, point] of chart.points.entries()) {
    const isJoined = at > 0 && chart.points[at - 1].environment === point.environment;
    if (isJoined) ctx.lineTo(x(at), y(point.value));
    else ctx.moveTo(x(at), y(point.value));
  }
  ctx.stroke();
  const radius = chart.points.length > 150 ? 1.6 : 2.4;
  for (const [at, point] of chart.points.entries()) dot(ctx, x(at), y(point.value), radius * ratio);
}

function steps(ctx, chart, x, bbox, colour, ratio) {
  ctx.font = `600 ${12 * ratio}px system-ui, sans-serif`;
  ctx.textBaseline = "top";
  // Words that would run into those before them stand a line lower.
  const rows = [];
  for (const change of chart.changes) {
    const at = x(change.index);
    ctx.strokeStyle = colour(`--draw-${change.tone}`);
    ctx.lineWidth = 2 * ratio;
    ctx.setLineDash([4 * ratio, 3 * ratio]);
    upright(ctx, at, bbox);
    ctx.setLineDash([]);
    ctx.fillStyle = colour(`--${change.tone}`);
    const words = `${change.said} p=${change.p.toPrecision(1)}`;
    const width = ctx.measureText(words).width + 10 * ratio;
    const isRight = at + width > bbox.left + bbox.width;
    const left = isRight ? at - width : at;
    let row = 0;
    while (rows[row] > left) row += 1;
    rows[row] = left + width;
    ctx.textAlign = isRight ? "right" : "left";
    ctx.fillText(words, at + (isRight ? -5 : 5) * ratio, bbox.top + (4 + 16 * row) * ratio);
  }
}

// Names that would run into each other are left out; the table has them.
function versions(ctx, chart, x, bbox, colour, ratio) {
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left";
  ctx.lineWidth = ratio;
  let free = bbox.left;
  for (const { index, version } of chart.versions) {
    const at = x(index);
    ctx.strokeStyle = colour("--line-strong");
    upright(ctx, at, bbox);
    const width = ctx.measureText(version).width;
    if (at < free || at + width > bbox.left + bbox.width) continue;
    ctx.fillStyle = colour("--ink-quiet");
    ctx.fillText(version, at + 3 * ratio, bbox.top + bbox.height - 3 * ratio);
    free = at + width + 8 * ratio;
  }
}

function upright(ctx, at, bbox) {
  ctx.beginPath();
  ctx.moveTo(at, bbox.top);
  ctx.lineTo(at, bbox.top + bbox.height);
  ctx.stroke();
}

function dot(ctx, x, y, radius) {
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  ctx.fill();
}
