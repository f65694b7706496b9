
// lines of charts: a mark at each measured point, and lines only between them

const present = (points) => points.filter(([, y]) => y !== null && y !== undefined);

// a line through points of which some are missing
function path(add, points, stroke, attributes = {}) {
  let d = "", pen = "M";
  for (const [x, y] of points) {
    if (y === null || y === undefined) { pen = "M"; continue; }
    d += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  if (d.includes("L")) add("path", { d, stroke, class: "curve", ...attributes });
}
// the marks of a line, smaller where they are close: one path, since a page may have thousands of marks
function marks(add, points, stroke) {
  const some = present(points);
  let near = Infinity;
  for (let i = 1; i < some.length; i++) near = Math.min(near, some[i][0] - some[i - 1][0]);
  const wide = Math.max(2.6, Math.min(6.5, 0.55 * near));
  const d = some.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h.01`).join("");
  if (d) add("path", { d, stroke, class: "marks", "stroke-width": wide.toFixed(1) });
}
function curve(add, points, stroke, attributes = {}) {
  path(add, points, stroke, attributes);
  marks(add, points, stroke);
}
// the name of a line, behind its color: as text, not every color could be read on every page
function labelLine(add, x, y, text, fill, kind = "key") {
  add("rect", { x, y: y - 7, width: 7, height: 7, rx: 1, fill });
  add("text", { x: x + 11, y, class: kind }, text);
}
// no two labels above each other
function spread(labels, low, high) {
  labels.sort((a, b) => a.y - b.y);
  labels.forEach((label, i) => { label.y = Math.max(label.y, i ? labels[i - 1].y + 12 : low); });
  for (let i = labels.length - 1; i >= 0; i--)
    labels[i].y = Math.min(labels[i].y, i + 1 < labels.length ? labels[i + 1].y - 12 : high);
  return labels;
}
const STEPS = [-4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6].flatMap((e) => [1, 2, 5].map((m) => +(m * 10 ** e).toPrecision(1)));
function roundAxis(add, x, bottom, right, most) {
  const step = STEPS.find((s) => s >= 1 && most / s <= (right > 500 ? 8 : 4)) || most;
  for (let r = 0; r <= most; r += step)
    add("text", { x: x(r), y: bottom + 14, "text-anchor": r && x(r) > right - 30 ? "end" : "middle" }, count(r));
}
function valueAxis(add, y, values, left, right, write) {
  for (const v of values) {
    add("line", { x1: left, x2: right, y1: y(v), y2: y(v), class: "axis" });
    add("text", { x: left - 4, y: y(v) + 4, "text-anchor": "end" }, write(v));
  }
}
// round numbers that enclose some values
function ticks(low, high) {
  const step = STEPS.find((s) => (high - low) / s <= 5) || high - low || 1;
  const first = Math.floor(low / step + 1e-9), last = Math.max(first + 1, Math.ceil(high / step - 1e-9));
  return Array.from({ length: last - first + 1 }, (_, i) => +((first + i) * step).toPrecision(12));
}
