
// what was received, and the connection that brings it

const KEY = "TOKEN";
let run = null, source = null, follow = true, place = 0, protocol = null, said = "", lost = "", playing = 0, ended = false;
let data = {}, drawn = 0, waiting = 0;

const list = (name) => data[name] || [];
const head = () => list("head")[0] || {};
const tasks = () => head().tasks || 1;
const shown = () => head().shown_tasks || [];
const taskName = (i) => "task " + (shown()[i] + 1);
function point() { return list("rounds")[Math.min(place, list("rounds").length - 1)] || null; }
const round = () => (point() || [0])[0];
function evaluations() { const until = round(); return list("evaluations").filter((e) => e[0] <= until); }
const valuesOf = (e) => e[2][protocol] || [];
const extent = () => Math.max(head().rounds || 0, head().round || 0, 1);

function receive(message) {
  ended = !!message.end;
  for (const [name, part] of Object.entries(message)) {
    if (!part || !part.items) continue;
    if (part.fresh || !data[name]) data[name] = [];
    for (const [at, item] of part.items) data[name][at] = item;
  }
  const last = Math.max(0, list("rounds").length - 1);
  if (follow || place > last) place = last;
  overlayFirst();
  later();
}
function connect() {
  if (source) source.close();
  source = null;
  if (ended || document.hidden) return;
  const asked = [...(run === null ? [] : ["run=" + run]), ...(overlaid.size ? ["over=" + [...overlaid.keys()].join()] : [])];
  source = new EventSource("/events" + (asked.length ? "?" + asked.join("&") : ""));
  source.onmessage = (event) => {
    lost = "";
    receive(JSON.parse(event.data));
    if (!ended) return;
    source.close();
    lost = "The command that served this page has ended. raysim live DIR serves it again.";
  };
  source.onerror = () => {
    lost = source.readyState === 2 ? "The connection was refused: close other windows with this page, and load it again."
      : "There is no connection to the command that serves this page. Trying again.";
    later();
  };
}
function choose(number) {
  if (run === number) return;
  run = number; follow = true; place = 0; protocol = null; said = ""; ended = false;
  data = Object.fromEntries(Object.entries(data).filter(([name]) => /^(folder|runs|states|over\/)/.test(name)));
  connect();
  later();
}
