
// one run: its numbers, its matrix, and its curves

function drawProtocols(all) {
  const before = [...$("protocols").children];
  if (before.map((button) => button.dataset.protocol).join() === (all.length > 1 ? all.join() : "")) {
    for (const button of before) button.setAttribute("aria-pressed", button.dataset.protocol === protocol);
    return;
  }
  $("protocols").replaceChildren(...(all.length > 1 ? all : []).map((name) => make("button",
    { "data-protocol": name, "aria-pressed": name === protocol }, PROTOCOLS[name] || name)));
}

// the numbers in three groups, each in rows of three
function drawNumbers() {
  const h = head(), p = point(), e = evaluations().at(-1), [mean, forgetting] = (e && e[3][protocol]) || [null, null];
  const label = PROTOCOLS[protocol] || protocol || "", name = h.metric.name;
  const left = h.state === "running" && h.rounds && follow ? (h.rounds - p[0]) * p[6] / p[0] : null;
  const ending = (follow && h.summary && h.summary.evaluation[protocol]) || {};
  const trained = p[2].length > 4 ? `${p[2].length} of them` : p[2].join(", ");
  const share = (v) => figure(v) + (v === null ? "" : unit());
  const why = h.in_step ? "There is no earlier task yet." : "Undefined: clients change their tasks at different times.";
  const atEnd = ["average_incremental_accuracy", "backward_transfer", "forward_transfer"].filter((key) => key in ending);
  drawGroup("results", "Result" + (label && ", " + label), [
    [`${name} so far`, share(mean), "n-mean", "main"], ["forgetting", share(forgetting), "n-forgetting", "main", forgetting === null && why],
    ["training loss", p[3] === null ? "–" : short(p[3]), "n-loss", "main"],
    ...atEnd.map((key) => [key.replaceAll("_", " "), share(ending[key]), "n-" + key]),
  ]);
  drawGroup("progress", "Progress", [
    ["round", count(p[0]) + (h.rounds ? " / " + count(h.rounds) : ""), "n-round", "main"],
    [h.in_step ? "task" : "tasks trained on", h.in_step ? `${p[1]} / ${tasks()}` : `${trained} of ${tasks()}`, "n-task", "main"],
    ...(left === null ? [] : [["left, about", seconds(left), "n-left", "main"]]),
    ["time in rounds", seconds(p[6]), "n-seconds", left === null ? "main" : ""],
    ...(p[8] === null ? [] : [["virtual time", seconds(p[8]), "n-virtual"]]),
  ]);
  drawGroup("cost", "Communication", [
    ["sent up", size(p[4]), "n-up", "main"], ["sent down", size(p[5]), "n-down", "main"], ["updates", count(p[7]), "n-updates", "main"],
  ]);
}
function drawGroup(id, title, numbers) {
  const before = $("g-" + id), group = before || make("div", { class: "group", id: "g-" + id });
  group.replaceChildren(make("h2", {}, title), make("dl", {}, null, numbers.map(([key, value, name, kind, why]) =>
    make("div", { class: kind || "", ...(why ? { "data-tip": why } : {}) }, null, [make("dt", {}, key), make("dd", { id: name }, value)]))));
  if (!before) $("numbers").append(group);
}

function drawMatrix() {
  const h = head(), until = round(), names = shown(), T = names.length, name = h.metric.name;
  const measured = list("rows").filter((row) => row[0] <= until).map((row) => [row[0], row[1][protocol] || [], false]);
  const latest = evaluations().at(-1), whole = measured.length === tasks();
  if (!h.rows_known) measured.length = 0;
  if (latest && !whole && (!measured.length || latest[0] > measured.at(-1)[0])) measured.push([latest[0], valuesOf(latest), true]);
  if (!measured.length) return;
  say("matrix-title", (name[0].toUpperCase() + name.slice(1)) + " matrix" + (percent() ? " (%)" : ""));
  const every = T < tasks() ? ` ${T} of ${count(tasks())} tasks, evenly spaced.` : "";
  say("matrix-note", ((h.in_step ? "Row: after a task. " : "Row: after a part of the run. ")
    + "Column: on a task." + (measured.at(-1)[2] ? " Dashed: so far." : "") + (h.rows_known ? "" : " Which rounds end a row is not recorded for this run.")) + every);
  const all = measured.flatMap((row) => row[1]).filter((v) => v !== null && v !== undefined);
  const sign = h.metric.higher_is_better ? 1 : -1;
  const low = percent() ? 0 : Math.min(...all.map((v) => sign * v)), high = percent() ? 1 : Math.max(...all.map((v) => sign * v));
  const grade = (v) => high > low ? (sign * v - low) / (high - low) : 1;
  const tip = (t, i) => {
    const v = measured[t][1][i], before = measured.slice(0, t).map((row) => row[1][i]).filter((w) => w !== null && w !== undefined);
    const best = before.length ? Math.max(...before.map((w) => sign * w)) : null;
    const change = best === null ? null : best - sign * v;
    const lost = change === null || v === null ? "" : change > 0 ? `\nlost since its best: ${figure(change)}`
      : `\nits best so far, by ${figure(-change)}`;
    return `${measured[t][2] ? "so far, " : ""}round ${count(measured[t][0])}, on ${taskName(i)}: ${figure(v)}${unit()}${lost}`;
  };
  const rowName = (t) => h.in_step ? String(t + 1) : `${t + 1}/${tasks()}`;
  if (T > 24) return paintMatrix(measured, grade, tip);
  const top = make("tr", {}, null, [make("td"), ...names.map((task) => make("th", { scope: "col" }, String(task + 1)))]);
  const rows = Array.from({ length: tasks() }, (_, t) => make("tr", {}, null, [make("th", { scope: "row" }, rowName(t)),
    ...names.map((_, i) => {
      const row = measured[t], v = row ? row[1][i] : null;
      if (!row || v === undefined) return make("td", { class: "none" }, "\u00a0");
      const cell = make("td", { "data-row": t, "data-task": i, "data-tip": tip(t, i) },
        v === null ? "–" : T > 12 ? percent() ? fixed(100 * v, 0) : figure(v) : figure(v));
      if (row[2]) cell.className = "part"; else if (h.in_step && i > t) cell.className = "later";
      if (cell.className !== "later") [cell.style.background, cell.style.color] = shade(v === null ? 0 : grade(v));
      return cell;
    })]));
  $("matrix").dataset.columns = T;
  $("matrix").replaceChildren(make("table", { class: "matrix" + (T > 9 ? " tight" : "") }, null, [make("thead", {}, null, [top]), make("tbody", {}, null, rows)]));
}
function paintMatrix(measured, grade, tip) {
  const last = measured.length - 1, rows = shown().filter((t) => t <= last);
  if (last >= 0 && measured[last][2] && rows.at(-1) !== last) rows.push(last);
  const T = shown().length, H = Math.max(T, rows.length);
  const sheet = make("canvas", { width: T, height: H, role: "img", "aria-label": "accuracy matrix" });
  const pen = sheet.getContext("2d");
  rows.forEach((row, t) => measured[row][1].forEach((v, i) => {
    if (v === null) return;
    pen.fillStyle = shade(grade(v))[0];
    pen.fillRect(i, t, 1, 1);
  }));
  sheet.style.imageRendering = "pixelated"; sheet.style.border = "1px solid var(--line)";
  sheet.onpointermove = (event) => {
    const box = sheet.getBoundingClientRect();
    const i = Math.floor((event.clientX - box.left) / box.width * T), t = Math.floor((event.clientY - box.top) / box.height * H);
    point_at(event, t in rows && i < T && i >= 0 ? tip(rows[t], i) : "");
  };
  $("matrix").replaceChildren(sheet);
}

// a row for each request to forget, the latest first
function drawRequests() {
  const until = round(), some = list("requests").filter((r) => r[0] <= until).reverse();
  if (!some.length) return;
  say("forgetting-note", "Before and after each request. Accuracies are of training samples so far. The attack tells forgotten samples from test samples by the loss: 0.5 is chance.");
  const pair = (values, text) => { const [a, b] = values.map((v) => v === null ? "–" : text(v)); return a === b ? a : `${a} to ${b}`; };
  const share = (v) => fixed(100 * v, 1), cells = ["round", "request", "samples", "accuracy on what is forgotten, %", "on the rest, %", "attack, AUC", "sent"];
  const rows = some.map((r) => make("tr", { "data-tip": r[7] }, null, [String(r[0]), r[1], count(r[2]), pair(r[3], share), pair(r[4], share), pair(r[5], (v) => fixed(v, 3)), size(r[6])]
    .map((text) => make("td", {}, text))));
  $("forgetting").replaceChildren(make("thead", {}, null, [make("tr", {}, null, cells.map((text) => make("th", { scope: "col" }, text)))]), make("tbody", {}, null, rows));
}

function drawCurves() {
  const h = head(), some = evaluations(), T = shown().length, name = h.metric.name, W = widthOf("curves"), H = 250;
  const labelled = T <= 12, strip = Math.min(60, 6 * T), left = 34, right = W - (labelled ? 62 : 8), bottom = H - 22 - strip - 4, top = 8;
  if (!some.length) return;
  say("curves-title", (name[0].toUpperCase() + name.slice(1)) + " on each task over rounds" + (percent() ? " (%)" : ""));
  say("curves-note", "A mark is an evaluation. " + (h.in_step ? "Shaded: the task in training. " : "") + "Strips below: the tasks that clients train on."
    + (h.evaluations_every > 1 ? ` One of ${h.evaluations_every} evaluations is drawn.` : ""));
  const [svg, add] = canvas(W, H, `${name} on each task over rounds`);
  const values = some.flatMap((e) => valuesOf(e)).filter((v) => v !== null), most = extent();
  const low = percent() ? 0 : Math.min(...values), high = percent() ? 1 : Math.max(...values, low + 1e-9);
  const x = (r) => left + r / most * (right - left), y = (v) => bottom - (v - low) / (high - low) * (bottom - top);
  const points = list("rounds").slice(0, place + 1);
  let since = 0;
  points.forEach((p, i) => {
    if (!h.in_step || (points[i + 1] && points[i + 1][1] === p[1])) return;
    const last = i === points.length - 1;
    add("rect", { x: x(since), y: top, width: Math.max(1, x(p[0]) - x(since)), height: bottom - top, fill: color(p[1], tasks()),
      opacity: last ? 0.24 : 0.09, "data-shaded": p[1] });
    since = p[0];
  });
  if (isFinite(low)) valueAxis(add, y, percent() ? [0, 0.25, 0.5, 0.75, 1] : [low, (low + high) / 2, high], left, right, percent() ? (v) => String(100 * v) : short);
  roundAxis(add, x, H - 18, right, most);
  const places = new Map(shown().map((task, i) => [task + 1, i])), strips = new Map();
  const mark = (task, from, to) => add("rect", { x: x(from), y: bottom + 4 + places.get(task) * strip / T,
    width: Math.max(1, x(to) - x(from)), height: Math.max(1, strip / T - 1), fill: color(task, tasks()) });
  let before = 0;
  for (const p of points) {
    for (const task of p[2].filter((task) => places.has(task))) {
      const open = strips.get(task);
      if (open && open[1] === before) open[1] = p[0];
      else { if (open) mark(task, ...open); strips.set(task, [before, p[0]]); }
    }
    before = p[0];
  }
  for (const [task, [from, to]] of strips) mark(task, from, to);
  for (let i = 0; i < T; i++)
    curve(add, some.map((e) => [x(e[0]), valuesOf(e)[i] === null ? null : y(valuesOf(e)[i])]), color(shown()[i] + 1, tasks()),
      { class: T > 12 ? "curve thin" : "curve" });
  const last = some.at(-1);
  if (labelled && last)
    for (const label of spread(shown().map((task, i) => ({ y: y(valuesOf(last)[i] ?? low) + 4, task })), top + 8, bottom))
      labelLine(add, Math.min(x(round()) + 6, right + 6), label.y, "task " + (label.task + 1), color(label.task + 1, tasks()), "label");
  add("line", { x1: x(round()), x2: x(round()), y1: top, y2: H - 22, class: "now" });
  $("curves").replaceChildren(svg);
  readable("curves", some.map((e) => [x(e[0]), `round ${count(e[0])}` + valuesOf(e).slice(0, 12).map((v, i) =>
    `\n${taskName(i)}: ${figure(v)}${unit()}`).join("") + (T > 12 ? "\n..." : "")]));
}

