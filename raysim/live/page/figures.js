
// numbers as text, and colors

const PALETTE = PALETTE_JSON;
const PROTOCOLS = {
  domain_il: "domain-IL", class_il: "class-IL", class_il_seen: "class-IL (seen classes)", task_il: "task-IL",
};

const count = (n) => n.toLocaleString("en-US");
const percent = () => head().metric && head().metric.unit === "%";
function fixed(v, digits) {  // halves go to even, as in Python's figures
  const parts = v * 2 ** (digits + 1), half = Number.isInteger(parts) && parts % 2 !== 0;
  return (half ? 2 * Math.round(v * 10 ** digits / 2) / 10 ** digits : v).toFixed(digits);
}
const figure = (v) => v === null || v === undefined ? "–" : percent() ? fixed(100 * v, 1) : fixed(v, 3);
const unit = () => percent() ? "%" : "";
const seconds = (s) => s < 10 ? s.toFixed(1) + " s" : s < 100 ? s.toFixed(0) + " s"
  : s < 6000 ? (s / 60).toFixed(0) + " min" : (s / 3600).toFixed(1) + " h";
const short = (v) => Math.abs(v) >= 1000 && Math.abs(v) < 1e7 ? count(Math.round(v)) : Math.abs(v) >= 1000 || (v && Math.abs(v) < 0.001) ? v.toExponential(1) : +v.toPrecision(3) + "";
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (bytes >= 1024 && at < 5) { bytes /= 1024; at++; }
  return (at ? bytes.toFixed(bytes < 100 ? 1 : 0) : bytes) + " " + units[at];
}
// the color of a task, or of what came to nothing
function color(task, tasks) {
  return task === 0 ? PALETTE.lost : tasks <= PALETTE.tasks.length ? PALETTE.tasks[task - 1] : mix((task - 1) / (tasks - 1));
}
// the color at a place from 0 to 1, as in a report
function mix(place) {
  const last = PALETTE.sequence.length - 1, below = Math.min(Math.floor(place * last), last - 1);
  const [from, to] = PALETTE.sequence.slice(below);
  return `rgb(${from.map((v, i) => Math.round(v + (place * last - below) * (to[i] - v)))})`;
}
function shade(share) {
  const place = Math.min(1, Math.max(0, share));
  return [mix(place), place >= PALETTE.dark_text ? "black" : "white"];
}
