// Links to a folded part open it, or the page of its setting, and printing opens all parts.
const reveal = () => {
  const id = decodeURIComponent(location.hash.slice(1)), target = document.getElementById(id);
  const [setting] = id.match(/^setting-\d+/) ?? [];
  const page = setting && document.getElementById(setting)?.querySelector("th a");
  if (!target && page) location.replace(page.href + location.hash);
  if (!target) return;
  for (let around = target; around; around = around.parentElement) if (around.matches("details")) around.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", reveal);
reveal();
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const part of closed) part.open = true;
});
addEventListener("afterprint", () => { for (const part of closed) part.open = false; });

// A table of runs is sorted by the heading that is clicked, and shows only what differs between the chosen runs.
for (const table of document.querySelectorAll("table.runs")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const text = (row, column) => row.cells[column].textContent.trim();
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const compare = new Intl.Collator("en", { numeric: true }).compare;
      const order = (one, other) => {
        const [a, b] = [one, other].map((row) => text(row, column));
        const difference = Number(a) - Number(b);
        return sign * (Number.isNaN(difference) ? compare(a, b) : difference);
      };
      body.append(...[...body.rows].sort(order));
    });
  });
  const form = document.createElement("p");
  const only = Object.assign(document.createElement("button"), { type: "button", disabled: true });
  only.textContent = "Show what differs between the chosen runs";
  form.append(only);
  table.before(form);
  const boxes = new Map();
  for (const row of body.rows) {
    const box = Object.assign(document.createElement("input"), { type: "checkbox" });
    box.setAttribute("aria-label", `choose ${text(row, 0)}, seed ${text(row, heads.findIndex((h) => h.textContent.trim() === "seed"))}`);
    row.cells[0].prepend(box, " ");
    boxes.set(row, box);
    box.addEventListener("change", () => {
      only.disabled = [...boxes.values()].filter((one) => one.checked).length < 2;
    });
  }
  let narrow = false;
  only.addEventListener("click", () => {
    narrow = !narrow;
    only.textContent = narrow ? "Show all runs" : "Show what differs between the chosen runs";
    const chosen = [...body.rows].filter((row) => boxes.get(row).checked);
    for (const row of body.rows) row.hidden = narrow && !chosen.includes(row);
    heads.forEach((head, column) => {
      const same = column > 0 && new Set(chosen.map((row) => text(row, column))).size < 2;
      for (const row of table.rows) row.cells[column].hidden = narrow && same;
    });
  });
}
