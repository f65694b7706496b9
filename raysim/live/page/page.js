
// the page as a whole

const WORDS = {
  waiting: "The run has not started yet. This page follows it as soon as it does.",
  interrupted: "The run was interrupted. Resume it with raysim run --resume --out DIR.",
  failed: "The run failed.",
  killed: "No process works on this run: it was killed, or it runs on a machine whose locks are not seen here.",
  deleted: "The directory of the run is gone. This is what was read before.",
  unreadable: "The files of the run cannot be read: ",
};

function later() { if (!drawn) drawn = requestAnimationFrame(() => { drawn = 0; draw(); }); }

function draw() {
  const h = head(), rounds = list("rounds"), several = list("runs").length > 0;
  drawRuns();
  show("head", !several || run !== null);
  const one = rounds.length > 0 || !!h.state;
  document.querySelectorAll(".one").forEach((part) => { part.hidden = !one || !rounds.length; });
  show("numbers", rounds.length > 0);
  say("name", h.name || h.label || "raysim live");
  $("state").className = "state " + (h.state || "");
  say("state", h.state || "connecting");
  say("about", [several && h.label, h.methods, h.schedule, h.name && "seed " + h.seed].filter(Boolean).join(" · "));
  document.title = h.name ? `${h.state} ${h.round || 0}/${h.rounds || "?"} · ${h.name}` : list("folder")[0] ? list("folder")[0].name + " · raysim live" : "raysim live";
  const stopped = h.summary && h.summary.stopped_by ? `The run was stopped by ${h.summary.stopped_by}. ` : "";
  const problem = h.state === "failed" && h.summary && h.summary.problem ? ` It says: ${h.summary.problem}` : "";
  let words = stopped + (h.state === "running" && !rounds.length ? "No round is done yet. " : "") + (WORDS[h.state] || "") + problem;
  if (h.state === "unreadable") words += h.trouble;
  if (h.state && h.state !== "running" && h.state !== "waiting" && !rounds.length && h.state !== "unreadable") words += " There are no rounds.";
  if (h.read < 1) words += ` Reading: ${Math.round(100 * h.read)}%.`;
  if (h.stopping && h.state === "running") words += " The run ends after the round in progress, with a checkpoint.";
  else if (h.state === "running" || said.startsWith("Not")) words += " " + said;
  say("word", [words.trim().replace("DIR", () => h.directory || "DIR"), lost].filter(Boolean).join(" "));
  show("stop", !!KEY && h.state === "running");
  $("stop").disabled = !!h.stopping || Date.now() < waiting;
  if (!rounds.length) return;
  const all = Object.keys((list("evaluations").at(-1) || [0, 0, {}])[2]);
  if (!all.includes(protocol)) protocol = all[0] || null;
  showCards();
  drawProtocols(all);
  drawNumbers();
  drawMatrix();
  drawCurves();
  drawRequests();
  drawTrips();
  drawMemory();
  drawLoss();
  drawBytes();
  tellAbsent();
  const slider = $("slider");
  slider.max = rounds.length - 1;
  slider.value = place;
  slider.setAttribute("aria-valuetext", "round " + round());
  say("where", `round ${count(round())}` + (follow ? h.state === "running" ? " · live" : " · end" : ""));
  say("play", playing ? "Pause" : "Replay");
}

// only what has data has a card; all are shown before any is drawn, since cards in a row share its width
function showCards() {
  const some = evaluations(), until = round();
  show("matrix-card", some.length > 0);
  show("curves-card", some.length > 0);
  show("forgetting-card", list("requests").some((r) => r[0] <= until));
  show("trips-card", !!head().dispatches);
  show("loss-card", list("rounds").some((p) => p[0] <= until && p[3] !== null));
  show("memory-card", some.some((e) => e[4] !== null));
}

$("slider").addEventListener("input", (event) => {
  place = +event.target.value;
  follow = place === list("rounds").length - 1;
  later();
});
$("play").addEventListener("click", () => {
  const last = list("rounds").length - 1, step = Math.max(1, Math.round(last / 200));
  if (playing) { clearInterval(playing); playing = 0; return later(); }
  if (place >= last) place = 0;
  follow = false;
  playing = setInterval(() => {
    place = Math.min(place + step, list("rounds").length - 1);
    if (place >= list("rounds").length - 1) { clearInterval(playing); playing = 0; follow = true; }
    later();
  }, 60);
  later();
});
$("protocols").addEventListener("click", (event) => {
  if (event.target.dataset.protocol) { protocol = event.target.dataset.protocol; later(); }
});
$("stop").addEventListener("click", async () => {
  $("stop").disabled = true;
  try {
    const answer = await fetch("/stop?run=" + (run || 0), { method: "POST", headers: { "X-Raysim-Token": KEY } });
    const text = (await answer.text()).trim();
    if (answer.ok) { waiting = Date.now() + 3000; setTimeout(later, 3100); }
    said = answer.ok ? "" : "Not stopped: " + text;
  } catch { said = "Not stopped: there is no connection."; }
  later();
});
document.addEventListener("visibilitychange", connect);
addEventListener("resize", later);
connect();
draw();
