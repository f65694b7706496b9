
// values at a place of a chart: by mouse, by touch, and by the arrow keys in a chart that has the focus

const readings = new Map();  // by the id of a chart with rounds: [x, text] of its measured points, from left to right
let reading = null;  // the chart that the keys are in, and the number of the place

function readable(id, places) {
  readings.set(id, places);
  if (reading && reading.box.id === id && document.activeElement === reading.box) tellPlace(false);
}
const marked = (box) => [...box.querySelectorAll("[data-tip]")];
function unmark() {
  for (const line of document.querySelectorAll(".cursor")) line.remove();
  for (const one of document.querySelectorAll(".read")) one.classList.remove("read");
}
function hideTip() {
  unmark();
  $("tip").hidden = true;
}
function tip(x, y, text) {
  const box = $("tip");
  box.hidden = !text;
  box.textContent = text;
  box.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.offsetWidth - 6)) + "px";
  box.style.top = Math.max(4, y + 18 + box.offsetHeight > innerHeight ? y - box.offsetHeight - 10 : y + 18) + "px";
}
function point_at(event, text) { tip(event.clientX, event.clientY, text); }

function drawCursor(box, x) {
  const svg = box.querySelector("svg");
  if (svg) svg.append(shape("line", { x1: x, x2: x, y1: 4, y2: svg.viewBox.baseVal.height - 22, class: "cursor" }));
}
function tellPlace(aloud) {
  const { box, at } = reading, around = box.getBoundingClientRect();
  unmark();
  let text = "";
  if (readings.has(box.id)) {
    const place = readings.get(box.id)[at];
    if (!place) return hideTip();
    text = place[1];
    drawCursor(box, place[0]);
    tip(around.left + place[0], around.top + 10, text);
  } else {
    const one = marked(box)[at];
    if (!one) return hideTip();
    text = one.dataset.tip;
    one.classList.add("read");
    const own = one.getBoundingClientRect();
    tip(own.left, own.bottom - 12, text);
  }
  if (aloud) say("spoken", text.replaceAll("\n", ", "));
}
function stepTo(box, at) {
  const last = (readings.has(box.id) ? readings.get(box.id) : marked(box)).length - 1;
  reading = { box, at: Math.max(0, Math.min(last, at)) };
  tellPlace(true);
}
addEventListener("keydown", (event) => {
  const box = event.target;
  if (event.key === "Escape") return hideTip();
  if (!box.classList || !box.classList.contains("draw")) return;
  const last = (readings.has(box.id) ? readings.get(box.id) : marked(box)).length - 1, here = reading && reading.box === box;
  const across = +box.dataset.columns || 0, at = here ? reading.at : event.key === "ArrowLeft" ? last + 1 : -1;
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last, ...(across && here ? { ArrowDown: at + across, ArrowUp: at - across } : {}) }[event.key];
  if (to === undefined || last < 0) return;
  event.preventDefault();
  if (to >= 0 && to <= last || !here) stepTo(box, to);
});
addEventListener("focusout", (event) => {
  if (!reading || event.target !== reading.box) return;
  reading = null;
  hideTip();
});
function readPointer(event) {
  const target = event.target.closest ? event.target : null, box = target && target.closest(".draw");
  const on = target && target.closest("[data-tip]");
  if (on) { unmark(); return point_at(event, on.dataset.tip); }
  if (box && box.querySelector("canvas")) return;  // it has its own reader
  const places = box && readings.get(box.id);
  if (!places || !places.length) { if (!reading) hideTip(); return; }
  const x = event.clientX - box.getBoundingClientRect().left;
  const near = places.reduce((best, place) => Math.abs(place[0] - x) < Math.abs(best[0] - x) ? place : best);
  unmark();
  drawCursor(box, near[0]);
  point_at(event, near[1]);
}
addEventListener("pointermove", readPointer);
addEventListener("pointerdown", readPointer);
