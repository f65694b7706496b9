// Adds a filter to every table of methods with these two columns: only rows within a budget are shown, and the first of
// them is the best one, as the tables are sorted by accuracy.
const COSTS = { "sent, MiB": "MiB sent", "gradient steps": "gradient steps" };
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
  const columns = Object.keys(COSTS).map((heading) => heads.indexOf(heading));
  if (columns.includes(-1)) continue;
  const form = document.createElement("p");
  const inputs = Object.values(COSTS).map((unit, index) => {
    const input = Object.assign(document.createElement("input"), { type: "number", min: 0, placeholder: "any" });
    input.setAttribute("aria-label", `at most, ${unit}`);
    input.style.width = "7em";
    form.append(index ? " and " : "Within ", input, ` ${unit}`);
    return input;
  });
  const best = document.createElement("output");
  form.append(": ", best);
  table.before(form);
  const show = () => {
    let first = "";
    for (const row of table.tBodies[0].rows) {
      const fits = columns.every((column, index) => {
        const cost = parseFloat(row.cells[column].textContent.replaceAll(",", ""));
        return inputs[index].value === "" || cost <= Number(inputs[index].value);
      });
      row.hidden = !fits;
      const ranked = !heads.includes("rank") || /^\d/.test(row.cells[heads.indexOf("rank")].textContent.trim());
      if (fits && ranked && !first) first = row.cells[0].textContent.trim();
    }
    best.textContent = first ? `the best is ${first}.` : "no method.";
  };
  form.addEventListener("input", show);
  show();
}
