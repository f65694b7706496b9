
// one run: clients in virtual time, memories, loss and bytes

function drawTrips() {
  const h = head(), now = (point() || [])[8] || 0, end = (list("rounds").at(-1) || [])[8] || 0;
  if (!h.dispatches) return;
  const per = h.clients_per_lane, lanes = h.first_clients.length;
  const some = h.shown_clients < h.clients ? `${count(h.shown_clients)} of ${count(h.clients)} clients, evenly spaced. ` : "";
  say("trips-note", some + (per > 1 ? `A row is ${per} clients. ` : "")
    + (h.one_by_one ? "A bar is from the model's arrival at a client to its reply. Its color is the task that the client is at. "
      : `Columns of ${short(h.column_width)} virtual seconds: the color is the most frequent task, its strength the share of time in training. `)
    + "Grey: the update was discarded, unused, or the client dropped out.");
  const chips = tasks() <= 12 ? Array.from({ length: tasks() }, (_, i) => i + 1) : [1, Math.ceil(tasks() / 2), tasks()];
  $("trips-keys").replaceChildren(...[...chips, 0].map((task) => {
    const chip = make("i");
    chip.style.background = color(task, tasks());
    return make("span", {}, null, [chip, task ? "task " + task : "came to nothing"]);
  }));
  const W = widthOf("trips"), each = Math.max(5, Math.min(24, 300 / lanes)), left = 66, right = W - 8, H = each * lanes + 26;
  const [svg, add] = canvas(W, H, "clients in virtual time");
  const x = (t) => left + t / (end || 1) * (right - left), step = Math.ceil(12 / each);
  for (let lane = 0; lane < lanes; lane += step) {
    const first = h.first_clients[lane];
    add("text", { x: left - 6, y: Math.max(9, lane * each + each / 2 + 4), "text-anchor": "end" }, `client ${count(first)}`);
  }
  if (h.one_by_one) for (const [lane, sent, back, task, fate] of list("trips")) {
    if (sent > now) continue;
    const away = back > now, to = Math.min(back, now);
    add("rect", { x: x(sent), y: lane * each + each * 0.1, width: Math.max(0.8, x(to) - x(sent) - 0.6), height: each * 0.8,
      rx: Math.min(2, each / 8), fill: color(fate === "used" ? task : 0, tasks()), opacity: away ? 0.5 : 1, "data-fate": fate,
      "data-tip": `client ${count(h.first_clients[lane])}, at task ${task}\nsent ${short(sent)} s, back ${short(back)} s: ${fate}` });
  } else {
    list("columns").forEach((cells, column) => {
      const from = column * h.column_width, best = new Map();
      if (from > now) return;
      for (let i = 0; i < cells.length; i += 3) {
        const [lane, task, share] = cells.slice(i, i + 3), other = best.get(lane) || [0, 0, 0];
        best.set(lane, share > other[1] ? [task, share, other[2] + share] : [other[0], other[1], other[2] + share]);
      }
      for (const [lane, [task, share, busy]] of best)
        add("rect", { x: x(from), y: lane * each, width: Math.max(0.8, Math.min(x(from + h.column_width), right) - x(from)), height: each - 0.5,
          fill: color(task, tasks()), opacity: 0.2 + 0.8 * Math.min(1, busy / 100), "data-tip":
          `client ${count(h.first_clients[lane])}${per > 1 ? " and the next ones" : ""}, from ${short(from)} s\n${task ? "mostly task " + task : "mostly updates that came to nothing"}, ${share}% of the time; in training ${Math.min(100, busy)}%` });
    });
  }
  let task = 1;
  if (h.in_step) for (const p of list("rounds")) {
    if (p[1] !== task && p[8] !== null) add("line", { x1: x(p[8]), x2: x(p[8]), y1: 0, y2: each * lanes, stroke: color(p[1], tasks()), "stroke-dasharray": "3 3" });
    task = p[1];
  }
  for (let i = 0; i <= 4; i++) add("text", { x: x(end * i / 4), y: H - 8, "text-anchor": i === 4 ? "end" : "middle" }, `${short(end * i / 4)} s`);
  add("line", { x1: x(now), x2: x(now), y1: 0, y2: each * lanes + 4, class: "now" });
  $("trips").replaceChildren(svg);
}

function drawMemory() {
  const with_counts = evaluations().filter((e) => e[4] !== null);
  if (!with_counts.length) return;
  const every = Math.ceil(with_counts.length / 40), some = with_counts.filter((_, i) => (with_counts.length - 1 - i) % every === 0);
  const total = (e) => e[4].reduce((a, b) => a + b, 0), most = Math.max(1, ...list("evaluations").filter((e) => e[4]).map(total));
  say("memory-note", `Samples in all memories together: ${count(total(some.at(-1)))} at round ${count(some.at(-1)[0])}.`
    + (every > 1 ? ` One of ${every} evaluations is drawn.` : ""));
  const W = widthOf("memory"), H = 150, left = 40, bottom = H - 20, [svg, add] = canvas(W, H, "samples in memories by task");
  const x = (r) => left + r / extent() * (W - left - 8), wide = Math.max(2, Math.min(22, (W - left) / Math.max(8, some.length * extent() / Math.max(1, round())) - 2));
  for (const v of [0, most]) add("text", { x: left - 4, y: bottom - v / most * (bottom - 10) + 4, "text-anchor": "end" }, count(v));
  for (const e of some) {
    let y = bottom;
    const said = e[4].map((n, i) => n ? `\n${taskName(i)}: ${count(n)}` : "").slice(0, 14).join("");
    e[4].forEach((n, i) => {
      const tall = n / most * (bottom - 10);
      if (n) add("rect", { x: x(e[0]) - wide, y: y - tall, width: wide, height: tall, fill: color(shown()[i] + 1, tasks()),
        "data-tip": `round ${count(e[0])}: ${count(total(e))} samples${said}` });
      y -= tall;
    });
  }
  roundAxis(add, x, H - 18, W - 8, extent());
  $("memory").replaceChildren(svg);
}

function drawLoss() {
  const points = list("rounds").slice(0, place + 1).map((p) => [p[0], p[3]]), wide = head().width;
  if (!points.some(([, v]) => v !== null)) return;
  say("loss-note", wide > 1 ? `A mark is the mean of ${wide} rounds.` : "A mark is a round.");
  drawLines("loss", [["loss", points, "var(--link)"]], short, list("rounds").map((p) => p[3]).filter((v) => v !== null));
}
// bytes up and down are often equal: then they are one line, as one would hide the other
function drawBytes() {
  const some = list("rounds").slice(0, place + 1), up = some.map((p) => [p[0], p[4]]), down = some.map((p) => [p[0], p[5]]);
  const equal = some.every((p) => p[4] === p[5]), all = list("rounds").flatMap((p) => [0, p[4], p[5]]);
  say("bytes-note", `Totals since the start: ${size(up.at(-1)[1])} up` + (equal ? " and as many down." : `, ${size(down.at(-1)[1])} down.`));
  drawLines("bytes", equal ? [["up and down", up, "var(--link)"]] : [["up", up, color(1, 2)], ["down", down, color(2, 2)]], size, all);
}
function drawLines(id, lines, write, whole) {
  const W = widthOf(id), H = 150, left = 58, right = W - 8, bottom = H - 20, top = 8, [svg, add] = canvas(W, H, id + " over rounds");
  const low = whole.reduce((a, b) => Math.min(a, b)), high = Math.max(whole.reduce((a, b) => Math.max(a, b)), low + 1e-9);
  const x = (r) => left + r / extent() * (right - left), y = (v) => bottom - (v - low) / (high - low) * (bottom - top);
  valueAxis(add, y, [low, (low + high) / 2, high], left, right, write);
  roundAxis(add, x, H - 18, right, extent());
  for (const [, points, stroke] of lines) curve(add, points.map(([r, v]) => [x(r), v === null ? null : y(v)]), stroke);
  if (id === "bytes") lines.forEach(([what, , stroke], i) => labelLine(add, left + 8, top + 12 + 14 * i, what, stroke));
  $(id).replaceChildren(svg);
  const first = lines[0][1];
  readable(id, first.map(([r], i) => [x(r), `round ${count(r)}` + lines.map(([name, points]) =>
    points[i][1] === null ? "" : `\n${name}: ${write(points[i][1])}`).join("")]));
}
// what the run does not record, in one line
function tellAbsent() {
  const h = head(), ways = [...(h.dispatches ? [] : ["clients in virtual time (logging.dispatches=true)"]), ...(h.memory ? [] : ["replay memories (logging.memory=true)"])];
  say("absent", ways.length ? `This run does not record ${ways.join(" and ")}.` : "");
}
