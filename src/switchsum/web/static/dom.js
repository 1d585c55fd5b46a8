// What all parts of the page make elements and texts with.  All texts are set as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";
export const byId = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}
export function draw(tag, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
}
const english = new Intl.NumberFormat("en", { maximumFractionDigits: 1 }); // making one takes longer than many numbers
export const number = (value) => english.format(Number(value));
const twoDigits = { hour: "2-digit", minute: "2-digit", second: "2-digit" }, timeOfDay = new Intl.DateTimeFormat("en-GB", twoDigits);
export const clock = (at = Date.now()) => timeOfDay.format(at); // one clock for all of the page: the reader's own
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
export const short = (value) => digits.format(value);
export const percent = (share) => `${number(100 * share)} %`;
export const isBad = (finding) => finding.kind !== "fine";
export function namedBy(job) { // rank -> the first sentence that names it
  const found = new Map();
  for (const one of job.findings.filter(isBad)) for (const rank of one.ranks) if (!found.has(rank)) found.set(rank, one);
  return found;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function setClass(element, name) {
  if (element.className !== name) element.className = name;
}
export function rows(body, records, cells) { // keeps what is there: a screen reader does not lose its place each second
  while (body.rows.length > records.length) body.deleteRow(-1);
  records.forEach((record, place) => {
    const row = body.rows[place] ?? body.insertRow();
    const { bad, values } = cells(record);
    setClass(row, bad ? "bad" : "");
    values.forEach(([text, kind, share], column) => {
      let cell = row.cells[column];
      if (!cell) { cell = column ? document.createElement("td") : make("th", { scope: "row" }); row.append(cell); }
      setClass(cell, kind ?? "");
      setText(cell, String(text));
      if (share !== undefined) cell.style.setProperty("--share", `${(100 * share).toFixed(1)}%`); // a bar behind the text
    });
  });
}
export function table(caption, columns) {
  const head = make("tr", {}, ...columns.map(([name, kind]) => make("th", { scope: "col", class: kind ?? "" }, name)));
  return make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody"));
}
export function sortable(table, keys, again) { // heads become buttons; `keys` are what records are sorted by, by column
  const state = { column: null, down: true };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!keys[column]) return;
    const button = make("button", { type: "button" }, head.textContent);
    button.addEventListener("click", () => {
      state.down = state.column === column ? !state.down : true;
      state.column = column;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      again();
    });
    head.replaceChildren(button);
  });
  return (records) => {
    const key = keys[state.column];
    if (!key) return records;
    const order = (one, other) => (typeof key(one) === "string" ? key(one).localeCompare(key(other)) : key(one) - key(other));
    return [...records].sort((one, other) => (state.down ? -1 : 1) * order(one, other));
  };
}
export function list(target, items, fill) { // changes only what differs, for the sake of aria-live
  const texts = JSON.stringify(items);
  if (target.shown === texts) return;
  target.shown = texts;
  target.replaceChildren(...items.map(fill));
}
