
// the runs of a folder: laid over each other in a chart, in a table, and two of them compared

const MOST_OVERLAID = 12, FIRST_OVERLAID = 6, NARROW = 6;  // runs, runs, and columns that a name may have
const HIDDEN = new Set();  // runs that the legend hides
const overlaid = new Map();  // the runs in the chart, each with the number of its color
let byHand = false, order = { key: null, falling: false };  // at first as the folder has them

const folder = () => list("folder")[0] || {};
const stateOf = (i) => list("states")[i] || [0, "waiting", 0, {}, 0];
const placeOf = (number) => list("runs").findIndex((one) => one.run === number);
const inMetric = (v, metric) => v === null || v === undefined ? "–" : metric.unit === "%" ? fixed(100 * v, 1) + "%" : fixed(v, 3);

// what was measured: a metric by a protocol; no column and no chart has values of two of them
function measures() {
  const found = new Map();
  list("runs").forEach(({ metric }, i) => {
    if (metric) for (const by of Object.keys(stateOf(i)[3])) found.set(JSON.stringify([metric.name, by]), { metric, by });
  });
  if (!found.size) found.set("", { metric: (list("runs").find((one) => one.metric) || {}).metric || { name: "accuracy", unit: "%", higher_is_better: true }, by: "" });
  const all = [...found].map(([key, one]) => ({ key, ...one, protocol: PROTOCOLS[one.by] || one.by }));
  const names = new Set(all.map((one) => one.metric.name)), protocols = new Set(all.map((one) => one.by));
  return all.map((one) => {
    const by = protocols.size > 1 ? ", " + one.protocol : "";  // only what tells measures apart is named
    return { ...one, title: one.metric.name + by, mean: `${one.metric.name} so far${by}`, forgetting: "forgetting" + (names.size > 1 ? ", " + one.metric.name : "") + by };
  });
}
// each metric by the chart's protocol: a column for every protocol would leave no room for the settings
function measuresOfTable() {
  const all = measures(), { by } = chosenOf(all), names = [...new Set(all.map((one) => one.metric.name))];
  return names.map((name) => all.filter((one) => one.metric.name === name)).map((own) => own.find((one) => one.by === by) || own[0]);
}
const chosenOf = (all) => all.find((one) => one.key === $("measure").value) || all[0];
const measured = (i, { metric, by }) => ((list("runs")[i].metric || {}).name === metric.name && stateOf(i)[3][by]) || [null, null];
function mayBeMeasured(i, { metric, by }) {
  const own = list("runs")[i].metric, found = Object.keys(stateOf(i)[3]);
  return !own || (own.name === metric.name && (!found.length || found.includes(by)));
}

// each key's last parts: as many as no other key ends with
function shortNames(keys) {
  const ending = (key, n) => key.split(".").slice(-n).join(".");
  return new Map(keys.map((key) => {
    let n = 1;
    while (ending(key, n) !== key && keys.some((other) => other !== key && ending(other, n) === ending(key, n))) n++;
    return [key, ending(key, n)];
  }));
}

// the first runs that begin are in the chart, until its reader chooses others
function overlayFirst() {
  if (byHand) return;
  const begun = list("runs").filter((_, i) => stateOf(i)[2] > 0).map((one) => one.run);
  const more = begun.filter((number) => !overlaid.has(number)).slice(0, Math.max(0, FIRST_OVERLAID - overlaid.size));
  more.forEach((number) => overlaid.set(number, freeSlot()));
  if (more.length) connect();
}
function freeSlot() {
  const taken = new Set(overlaid.values());
  return Array.from({ length: MOST_OVERLAID }, (_, i) => i).find((i) => !taken.has(i));
}
function overlay(number, wanted) {
  byHand = true;
  if (!wanted) overlaid.delete(number); else if (overlaid.size < MOST_OVERLAID) overlaid.set(number, freeSlot());
  HIDDEN.delete(number);
  delete data["over/" + number];
  connect();
  later();
}
function looks(number) {
  const slot = overlaid.get(number), hues = PALETTE.tasks.length;
  return [PALETTE.tasks[slot % hues], slot >= hues ? { "stroke-dasharray": "6 4" } : {}];
}

// the settings that have a column: those in which the runs that have them differ
function columns() {
  const runs = list("runs");
  return keysThatDiffer().filter((key) => new Set(runs.filter((one) => key in one.settings).map((one) => one.settings[key])).size > 1);
}
const keysThatDiffer = () => (folder().keys || []).filter((key) => key !== "methods");  // their names have a column of their own
const methodsDiffer = () => new Set(list("runs").map((one) => one.methods)).size > 1;
// names that say how the runs differ, and their folders where that is not short or not enough
function titles() {
  const keys = columns(), runs = list("runs"), parts = shortNames(keys);
  const short = runs.map((one) => !one.methods || keys.length > NARROW ? one.label
    : [...(methodsDiffer() ? [one.methods] : []), ...keys.filter((key) => key in one.settings).map((key) => `${parts.get(key)} ${one.settings[key]}`)].join(", "));
  return runs.map((one, i) => short[i] && short.indexOf(short[i]) === short.lastIndexOf(short[i]) ? short[i] : one.label);
}

function drawRuns() {
  const runs = list("runs");
  show("folder", runs.length > 0 || !!list("folder").length);
  if (!list("folder").length) return;
  const states = {};
  for (const [, state] of list("states")) states[state] = (states[state] || 0) + 1;
  say("folder-name", folder().name);
  say("folder-note", (folder().of > runs.length ? `${runs.length} of ${count(folder().of)} runs, running ones first: ` : `${count(runs.length)} runs: `)
    + Object.entries(states).map(([state, n]) => `${n} ${state}`).join(", ")
    + (folder().cut_after ? `. The search for runs looked at the first ${count(folder().cut_after)} folders; a folder nearer to the runs shows all.` : ""));
  const names = titles();
  drawOverlay(names);
  drawTable();
  drawDifference(names);
}

// choices of a select, kept while nothing changes so that it stays open
function options(id, pairs) {
  const box = $(id), text = JSON.stringify(pairs);
  if (box.dataset.pairs === text) return;
  const before = box.value;
  box.dataset.pairs = text;
  box.replaceChildren(...pairs.map(([value, name]) => make("option", { value }, name)));
  if (pairs.some(([value]) => String(value) === before)) box.value = before;
}
const overlaidRuns = () => [...overlaid.keys()].filter((number) => placeOf(number) >= 0);

function drawOverlay(names) {
  const numbers = overlaidRuns(), all = measures();
  options("measure", all.map((one) => [one.key, one.title]));
  show("overlay-measure", all.length > 1);
  show("overlay-card", numbers.length > 0);
  if (!numbers.length) return;
  const chosen = chosenOf(all), { metric } = chosen, percents = metric.unit === "%";
  options("quantity", [["mean", "mean so far"], ["forgetting", "forgetting"]]);
  const forgetting = $("quantity").value === "forgetting";
  const lines = numbers.filter((number) => mayBeMeasured(placeOf(number), chosen)).map((number) => ({ number, name: names[placeOf(number)],
    points: list("over/" + number).map(([r, means]) => [r, (means[chosen.by] || [null, null])[forgetting ? 1 : 0]]).filter(([, v]) => v !== null && v !== undefined) }));
  drawLegend(lines, metric);
  const seen = lines.filter((line) => !HIDDEN.has(line.number));
  const values = seen.flatMap((line) => line.points.map(([, v]) => v));
  say("overlay-title", (forgetting ? "Forgetting" : `Mean ${metric.name} on the tasks so far`) + (chosen.protocol && ", " + chosen.protocol)
    + (percents ? " (%)" : ""));
  say("overlay-note", values.length ? "A mark is an evaluation."
    : seen.length ? forgetting ? "Forgetting is defined from the second task on." : "Nothing was evaluated yet." : lines.length ? "The legend hides all runs."
      : "The chosen runs have no such value: press a box in the table.");
  const scale = percents ? 100 : 1, W = widthOf("overlay"), H = W > 700 ? 280 : 220, left = 38, right = W - 12, bottom = H - 22, top = 8;
  const [svg, add] = canvas(W, H, $("overlay-title").textContent);
  const marks = values.length ? ticks(scale * Math.min(...values), scale * Math.max(...values)) : [0, 1];
  const most = Math.max(1, ...lines.map(({ number }) => Math.max(list("runs")[placeOf(number)].rounds || 0, stateOf(placeOf(number))[2])));
  const x = (r) => left + r / most * (right - left), y = (v) => bottom - (v - marks[0]) / (marks.at(-1) - marks[0]) * (bottom - top);
  valueAxis(add, y, marks, left, right, (v) => short(v));
  roundAxis(add, x, H - 18, right, most);
  for (const line of seen) {
    const [hue, attributes] = looks(line.number);
    curve(add, line.points.map(([r, v]) => [x(r), y(scale * v)]), hue, attributes);
  }
  $("overlay").replaceChildren(svg);
  const at = new Map();
  for (const line of seen) for (const [r, v] of line.points) at.set(r, [...(at.get(r) || []), [v, line.name]]);
  readable("overlay", [...at].sort((a, b) => a[0] - b[0]).map(([r, found]) =>
    [x(r), `round ${count(r)}` + found.sort((a, b) => b[0] - a[0]).map(([v, who]) => `\n${inMetric(v, metric)}  ${who}`).join("")]));
}
function drawLegend(lines, metric) {
  const box = $("legend"), numbers = lines.map((line) => line.number).join();
  if (box.dataset.runs !== numbers) {
    box.dataset.runs = numbers;
    box.replaceChildren(...lines.map((line) => make("button", { "data-run": line.number })));
  }
  lines.forEach((line, i) => {
    const button = box.children[i], [hue, attributes] = looks(line.number), last = line.points.at(-1);
    const value = last ? inMetric(last[1], metric) : "", text = line.name + value, pressed = String(!HIDDEN.has(line.number));
    if (button.dataset.text === text + hue && button.getAttribute("aria-pressed") === pressed) return;
    button.dataset.text = text + hue;
    button.setAttribute("aria-pressed", pressed);
    const sample = shape("svg", { viewBox: "0 0 22 10", height: 10, "aria-hidden": "true" });
    sample.append(shape("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: hue, "stroke-width": 2, ...attributes }), shape("circle", { cx: 11, cy: 5, r: 3.2, fill: hue }));
    button.replaceChildren(sample, make("span", {}, line.name), " ", make("b", {}, value));
  });
}

// the table: each column's name, text by run, and value to sort by
function tableColumns() {
  const keys = columns(), parts = shortNames(keys), all = measuresOfTable();
  const values = (quantity, at) => all.map((one) => ({ key: `${quantity} ${one.metric.name}`, name: one[quantity], number: true,
    falling: at === 0 && one.metric.higher_is_better, value: (i) => measured(i, one)[at],
    text: (i) => inMetric(measured(i, one)[at], one.metric) }));
  const own = (key) => ({ key, name: parts.get(key), title: key, number: list("runs").every((one) => !(key in one.settings) || !isNaN(one.settings[key])),
    text: (i) => list("runs")[i].settings[key] ?? "–" });
  return [
    { key: "run", name: "run", text: (i) => list("runs")[i].label },
    ...values("mean", 0),
    ...values("forgetting", 1),
    { key: "state", name: "state", text: (i) => stateOf(i)[1] },
    { key: "round", name: "round", number: true, value: (i) => stateOf(i)[2], text: (i) => count(stateOf(i)[2]) + (list("runs")[i].rounds ? "/" + count(list("runs")[i].rounds) : "") },
    { key: "seconds", name: "time", number: true, value: (i) => stateOf(i)[4], text: (i) => seconds(stateOf(i)[4]) },
    ...(methodsDiffer() ? [{ key: "methods", name: "methods", text: (i) => list("runs")[i].methods || "–" }] : []),
    ...keys.map(own),
  ];
}
function sorted(columns) {
  const by = columns.find((column) => column.key === order.key), sign = order.falling ? -1 : 1;
  if (!by) return list("runs").map((_, i) => i);
  const value = by.value || (by.number ? (i) => by.text(i) === "–" ? null : +by.text(i) : by.text);
  return list("runs").map((_, i) => i).sort((a, b) => {
    const [u, v] = [value(a), value(b)];
    if (u === v) return a - b;
    if (u === null || u === undefined || v === null || v === undefined) return u === null || u === undefined ? 1 : -1;
    return sign * (typeof u === "number" ? u - v : u.localeCompare(v, "en", { numeric: true }));
  });
}
function drawTable() {
  const all = tableColumns(), body = $("table").tBodies[0], focus = document.activeElement;
  drawTop(all);
  const words = $("filter").value.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const rows = new Map([...body.rows].map((row) => [+row.dataset.run, row]));
  let left = 0;
  const wanted = sorted(all).map((i) => {
    const number = list("runs")[i].run, row = rows.get(number) || newRow(number);
    const texts = all.map((column) => column.text(i));
    fillRow(row, i, all, texts);
    const found = words.every((word) => texts.join(" ").toLowerCase().includes(word));
    row.hidden = !found;
    left += found;
    return row;
  });
  if (wanted.length !== body.rows.length || wanted.some((row, i) => body.rows[i] !== row)) {
    body.replaceChildren(...wanted);
    if (body.contains(focus)) focus.focus({ preventScroll: true });
  }
  const full = overlaid.size >= MOST_OVERLAID ? ` The chart has room for ${MOST_OVERLAID} runs.` : "";
  say("table-note", (words.length ? `${left} of ${wanted.length} runs. ` : "") + "Press a heading to sort, a box to put a run into the chart, a run to see its matrix and curves."
    + " Settings that differ have a column." + (new Set(measures().map((one) => one.by)).size > 1 ? " The chart's selector sets the protocol." : "") + full);
}
function drawTop(all) {
  const top = $("table").tHead.rows[0], keys = all.map((column) => column.key + column.name).join();
  if (top.dataset.keys !== keys) {
    top.dataset.keys = keys;
    top.replaceChildren(make("th", { scope: "col" }, "chart"), ...all.map((column) => make("th", { scope: "col", class: column.number ? "n" : "" }, null,
      [make("button", { "data-key": column.key, title: column.title || column.name }, column.name)])));
  }
  all.forEach((column, i) => {
    const cell = top.cells[i + 1];
    if (column.key === order.key) cell.setAttribute("aria-sort", order.falling ? "descending" : "ascending"); else cell.removeAttribute("aria-sort");
  });
}
function newRow(number) {
  const row = make("tr", { "data-run": number }), box = make("input", { type: "checkbox" });
  row.append(make("td", {}, null, [box]), make("td", {}, null, [make("button")]));
  return row;
}
function fillRow(row, i, all, texts) {
  const one = list("runs")[i], box = row.cells[0].firstChild, button = row.cells[1].firstChild;
  box.checked = overlaid.has(one.run);
  box.disabled = !box.checked && overlaid.size >= MOST_OVERLAID;
  if (box.ariaLabel !== `in the chart: ${one.label}`) box.ariaLabel = `in the chart: ${one.label}`;
  if (one.run === run) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
  if (button.textContent !== texts[0]) button.textContent = texts[0];
  while (row.cells.length > all.length + 1) row.lastChild.remove();
  all.slice(1).forEach((column, k) => {
    const cell = row.cells[k + 2] || row.appendChild(make("td")), text = texts[k + 1];
    const kind = column.key === "state" ? "state " + text : column.number ? "n" : "text";
    if (cell.textContent !== text) cell.textContent = text;
    if (cell.className !== kind) cell.className = kind;
  });
}

function drawDifference(names) {
  const runs = list("runs"), begun = runs.map((_, i) => i).filter((i) => runs[i].methods);
  show("compare", begun.length > 1);
  if (begun.length < 2) return;
  const first = !$("left").dataset.pairs;
  for (const id of ["left", "right"]) options(id, begun.map((i) => [runs[i].run, names[i]]));
  if (first) $("right").selectedIndex = 1;
  const [a, b] = ["left", "right"].map((id) => placeOf(+$(id).value));
  if (a < 0 || b < 0) return;
  const keys = keysThatDiffer().filter((key) => runs[a].settings[key] !== runs[b].settings[key]);
  say("compare-note", a === b ? "Choose two runs." : keys.length || runs[a].methods !== runs[b].methods ? "" : "These two configs are equal.");
  const values = keys.map((key) => [key, ...[a, b].map((i) => runs[i].settings[key] ?? "–")]);
  if (runs[a].methods !== runs[b].methods) values.unshift(["methods", runs[a].methods, runs[b].methods]);
  const text = JSON.stringify([values, names[a], names[b]]);
  if ($("difference").dataset.text === text) return;
  $("difference").dataset.text = text;
  $("difference").replaceChildren(...(values.length ? [
    make("thead", {}, null, [make("tr", {}, null, ["key", names[a], names[b]].map((name) => make("th", { scope: "col" }, name)))]),
    make("tbody", {}, null, values.map(([key, ...both]) => make("tr", {}, null, [make("th", { scope: "row" }, key),
      ...both.map((value) => make("td", {}, value))]))),
  ] : []));
}

$("legend").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const number = +button.dataset.run;
  if (!HIDDEN.delete(number)) HIDDEN.add(number);
  later();
});
$("table").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const key = button.dataset.key;
  if (!key) {
    choose(+button.closest("tr").dataset.run);
    return requestAnimationFrame(() => $("head").scrollIntoView({ block: "start" }));
  }
  const { falling } = tableColumns().find((column) => column.key === key);
  order = order.key === key ? { key, falling: !order.falling } : { key, falling: !!falling };
  later();
});
$("table").addEventListener("change", (event) => overlay(+event.target.closest("tr").dataset.run, event.target.checked));
for (const id of ["quantity", "measure", "left", "right"]) $(id).addEventListener("change", later);
$("filter").addEventListener("input", later);
