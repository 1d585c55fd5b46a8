// Switches, the links between them with the trees that use them, and hosts below their switch, as a drawing.
import { byId, draw, list, make, namedBy, number, percent, setText } from "./dom.js";

const HOST = 104, LEVEL = 96, WIRE = 34, CHIP = 48, DOT = 14, COLOURS = 4, MANY = 8;
const WIDE = { SWITCH: 150, GAP: 14, FOLDED: 168, DOTS: 8 }, NARROW = { SWITCH: 78, GAP: 5, FOLDED: 78, DOTS: 4 }; // for telephones
let size = WIDE;
const called = (name) => name || "switch";
// How a rank looks that a sentence names, by the sentence's kind, and what its box says.
const LOOKS = { straggler: "stopped", lost: "stopped", mismatch: "stopped", silent: "slow", late: "slow", link: "slow", congested: "slow", missing: "absent", nobody: "absent", starting: "absent" };
const SAYS = {
  straggler: (row) => `awaited ${number(Math.round(row.named.since_s))} s`, lost: () => "is lost", mismatch: () => "calls differently", silent: () => "reports nothing",
  late: (row) => row.does, link: (row) => (row.lost_share ? `loses ${percent(row.lost_share)}` : "link is slow or dead"), congested: (row) => `${percent(row.marked_share)} marked`,
  missing: () => "has not joined", nobody: () => "has not joined", starting: () => "is still to come",
};
const LEGEND = { // of what is there alone
  "host stopped": "red box: the others wait for this rank, or it is lost", "host slow": "amber box: this rank is late or silent, or its link loses frames",
  "host absent": "dashed red box: this rank has not joined", "wire lossy": "amber line: this link loses frames",
  "wire cut": "red line with a cross: this link is down or gone", "switch away": "red switch: it does not answer",
};
const opened = new Map(); // switch -> whether its hosts are drawn one by one, where the reader has chosen

function ranksBySwitch(picture) {
  const found = new Map(picture.switches.map((one) => [one.switch, []]));
  for (const job of picture.jobs) {
    const named = namedBy(job);
    for (const row of job.ranks) {
      const place = found.has(row.switch) ? row.switch : picture.switches[0]?.switch, one = named.get(row.rank);
      found.get(place)?.push({ ...row, named: one, look: LOOKS[one?.kind] ?? "" });
    }
  }
  return found;
}
function widthOf(ranks, isOpen) {
  if (!ranks.length) return size.SWITCH;
  return Math.max(size.SWITCH, isOpen ? ranks.length * (HOST + size.GAP) - size.GAP : size.FOLDED);
}
function layOut(picture, hosts, across) { // which leaves are folded, and where each switch is
  const levels = [];
  for (const one of picture.switches) (levels[one.level] ??= []).push(one.switch);
  const open = new Map([...hosts].map(([name, ranks]) => [name, opened.get(name) ?? ranks.length <= MANY]));
  const rowWidth = (row) => row.reduce((total, name) => total + widthOf(hosts.get(name), open.get(name)) + 2 * size.GAP, 0);
  for (const row of levels.filter(Boolean)) { // the leaves with most hosts are folded until all fit beside one another
    for (const name of [...row].sort((one, other) => hosts.get(other).length - hosts.get(one).length))
      if (rowWidth(row) > across && !opened.has(name) && hosts.get(name).length > 1) open.set(name, false);
  }
  const width = Math.max(across, ...levels.filter(Boolean).map(rowWidth));
  const places = new Map();
  let top = 8;
  for (const row of levels.filter(Boolean)) {
    const spare = (width - rowWidth(row)) / row.length;
    let left = 0;
    for (const name of row) {
      const own = widthOf(hosts.get(name), open.get(name)) + 2 * size.GAP + spare;
      places.set(name, { x: left + own / 2, y: top });
      left += own;
    }
    top += LEVEL + Math.max(0, ...row.map((name) => heightOf(hosts.get(name), open.get(name))));
  }
  return { open, width, height: top - LEVEL + 50, places };
}
function heightOf(ranks, isOpen) { // of what is below a switch
  if (!ranks.length) return 0;
  return WIRE + (isOpen ? CHIP : 24 + DOT * Math.ceil(ranks.length / size.DOTS));
}
const cross = (x, y) => draw("text", { x, y: y + 7, "text-anchor": "middle", class: "cross" }, "×");
function box({ x, y }, wide, high, texts, kind) {
  const words = texts.map((text, at) =>
    draw("text", { x, y: y + 17 + 13 * at, "text-anchor": "middle", ...(at ? { class: "soft" } : {}) }, text));
  return { parts: [draw("rect", { x: x - wide / 2, y, width: wide, height: high, rx: 5, class: kind }), ...words], last: words.at(-1) };
}
function build(picture, links, hosts, across) {
  const { open, width, height, places } = layOut(picture, hosts, across), boxes = new Map(), drawn = [];
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  const wires = links.map((link) => {
    const [low, high] = link.ends.map((end) => places.get(end));
    const level = low.y === high.y, lines = (link.trees.length ? link.trees : [-1]).map((tree, at) => {
      const shift = 8 * at, kind = link.gone ? "cut" : tree < 0 ? "idle" : `tree${tree % COLOURS}`;
      const side = Math.sign(high.x - low.x) * (size.SWITCH / 2);
      return draw("line", level
        ? { x1: low.x + side, y1: low.y + 20 + shift, x2: high.x - side, y2: high.y + 20 + shift, class: `wire ${kind}` }
        : { x1: low.x + shift, y1: low.y, x2: high.x + shift, y2: high.y + 40, class: `wire ${kind}` });
    });
    const title = draw("title");
    lines[0].append(title);
    svg.append(...lines);
    if (link.gone) { // near the upper end, where no other lines cross
      const down = level ? 0.5 : 0.2, top = high.y + (level ? 20 : 40), end = low.y + (level ? 20 : 0);
      svg.append(cross(high.x + down * (low.x - high.x), top + down * (end - top)));
    }
    return { lines, title };
  });
  const later = [];
  for (const [name, ranks] of hosts) {
    const at = places.get(name);
    if (!ranks.length) continue;
    const top = at.y + 40 + WIRE, all = { name, ranks, hosts: [], isOpen: open.get(name) };
    if (all.isOpen) {
      ranks.forEach((row, place) => {
        const x = at.x + (place - (ranks.length - 1) / 2) * (HOST + size.GAP);
        const lines = row.links.map((one, link) => {
          const from = places.get(one.switch) ?? at, shift = 10 * (link - (row.links.length - 1) / 2), bus = top - 12 - 6 * link;
          return draw("polyline", { points: `${from.x + shift},${from.y + 40} ${from.x + shift},${bus} ${x + shift},${bus} ${x + shift},${top}`, class: "wire" });
        });
        const { parts, last } = box({ x, y: top }, HOST, CHIP, [`${row.job}/${row.rank}`.slice(0, 15), (row.host || "not known").slice(0, 16), ""], "host");
        svg.append(...lines);
        later.push(...parts);
        const crosses = row.links.map((one, link) => cross(x + 10 * (link - (row.links.length - 1) / 2), top - 6));
        later.push(...crosses);
        all.hosts.push({ lines, crosses, frame: parts[0], last });
      });
    } else { // one line for all of them, and a dot for each
      const line = draw("line", { x1: at.x, y1: at.y + 40, x2: at.x, y2: top, class: "wire" });
      const rows = Math.ceil(ranks.length / size.DOTS), { parts, last } = box({ x: at.x, y: top }, size.FOLDED, 24 + DOT * rows, [`${ranks.length} ranks`], "host");
      svg.append(line);
      later.push(...parts);
      all.line = line;
      all.label = last;
      ranks.forEach((row, place) => {
        const dot = draw("rect", { x: at.x - (size.DOTS * DOT) / 2 + DOT * (place % size.DOTS), y: top + 22 + DOT * Math.floor(place / size.DOTS), width: DOT - 3, height: DOT - 3, class: "dot" });
        const title = draw("title");
        dot.append(title);
        later.push(dot);
        all.hosts.push({ lines: [], frame: dot, title });
      });
    }
    drawn.push(all);
  }
  for (const one of picture.switches) {
    const { parts, last } = box(places.get(one.switch), size.SWITCH, 40, [called(one.switch).slice(0, 20), ""], "switch");
    boxes.set(one.switch, { frame: parts[0], last });
    const ranks = hosts.get(one.switch), group = draw("g", { "data-switch": one.switch });
    if (ranks.length > 1) {
      const isOpen = open.get(one.switch), toggle = () => { opened.set(one.switch, !isOpen); topology.again?.(); };
      Object.entries({ role: "button", tabindex: 0, "aria-expanded": isOpen, "aria-label": `${isOpen ? "Fold" : "Show"} the ${ranks.length} hosts of ${called(one.switch)}` })
        .forEach(([name, value]) => group.setAttribute(name, value));
      group.addEventListener("click", toggle);
      group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } });
    }
    group.append(...parts);
    later.push(group);
  }
  svg.append(...later);
  return { svg, boxes, wires, drawn };
}
function light(line, load, kind) {
  const isWrong = /cut|lossy/.test(kind), wide = isWrong ? Math.max(load, 0.3) : load; // what is wrong is seen though nothing goes over it
  const look = `${(1 + 5 * wide).toFixed(1)} ${(isWrong ? 1 : 0.35 + 0.65 * load).toFixed(2)}`;
  if (line.dataset.look !== look) { line.dataset.look = look; [line.style.strokeWidth, line.style.opacity] = look.split(" "); }
  mark(line, kind);
}
function mark(frame, kind) {
  if (frame.getAttribute("class") !== kind) frame.setAttribute("class", kind);
}
export function portsText(row, named = (link) => `${link.port}`) {
  return row.links.filter((one) => one.port >= 0).map((one) => `${named(one)}${one.down ? " (down)" : ""}`).join(", ") || "–";
}
export function topology(picture) {
  const hosts = ranksBySwitch(picture), target = byId("topology"), { switches } = picture, ranks = [...hosts.values()].flat();
  const links = picture.links.filter(({ ends }) => ends.every((end) => hosts.has(end))); // one to a switch that is not listed has no other end
  topology.again = () => { delete target.dataset.shown; topology(picture); };
  const most = Math.max(1e5, ...ranks.map((row) => row.bytes_per_s)), busiest = Math.max(1, ...links.map((one) => one.per_s));
  const across = Math.max(300, Math.floor(target.clientWidth));
  const key = JSON.stringify([across, switches.map((one) => [one.switch, one.level]), links.map((one) => [one.ends, one.trees, one.gone]),
    ranks.map((row) => [row.job, row.rank, row.host, row.links.map((one) => one.switch)])]);
  if (target.dataset.shown !== key) { // else only rates and states differ
    size = WIDE;
    if (layOut(picture, hosts, across).width > across) size = NARROW;
    const focused = target.contains(document.activeElement) ? document.activeElement.dataset.switch : null;
    target.drawn = build(picture, links, hosts, across);
    target.replaceChildren(target.drawn.svg);
    target.dataset.shown = key;
    if (focused != null) [...target.querySelectorAll("[tabindex]")].find((one) => one.dataset.switch === focused)?.focus(); // whoever folds by the keyboard goes on there
  }
  const { svg, boxes, wires, drawn } = target.drawn;
  for (const one of switches) {
    const { frame, last } = boxes.get(one.switch);
    mark(frame, one.state === "away" ? "switch away" : "switch");
    setText(last, one.state === "away" ? size === WIDE ? "does not answer" : "no answer" : one.per_s === null ? "" : `${number(Math.round(one.per_s))}${size === WIDE ? " contributions" : ""}/s`);
  }
  links.forEach((link, place) => {
    const { lines, title } = wires[place];
    for (const line of lines) light(line, link.per_s / busiest, line.getAttribute("class"));
    setText(title, `${words(link)}, ${number(Math.round(link.per_s))} partial sums/s`);
  });
  for (const leaf of drawn) {
    const rows = hosts.get(leaf.name);
    rows.forEach((row, place) => {
      const { lines, crosses, frame, last, title } = leaf.hosts[place], said = `port ${portsText(row)}, ${number(row.bytes_per_s / 1e6)} MB/s`;
      row.links.forEach((link, at) => {
        if (lines[at]) light(lines[at], (link.share * row.bytes_per_s) / most, wireOf(row, link));
        if (crosses?.[at]) crosses[at].style.display = link.down ? "" : "none";
      });
      mark(frame, `${title ? "dot" : "host"} ${row.look}`.trim());
      if (last) { setText(last, row.look ? SAYS[row.named.kind](row) : said); mark(last, `soft ${row.look}`.trim()); }
      if (title) setText(title, `${row.job}/${row.rank} at ${row.host || "a host not known"}: ${said}`);
    });
    if (leaf.line) {
      const load = rows.reduce((sum, row) => sum + row.bytes_per_s, 0) / (most * rows.length), bad = rows.filter((row) => row.look).map((row) => row.rank);
      const marked = bad.length > 3 ? `${bad.length} marked` : bad.length ? `marked: ${bad.join(", ")}` : "";
      light(leaf.line, Math.min(1, load), rows.some((row) => row.named?.kind === "link") ? "wire lossy" : "wire");
      setText(leaf.label, `${rows.length} ranks${marked && size === WIDE ? `, ${marked}` : ""}`);
    }
  }
  const said = `${switches.length > 1 ? `${switches.length} switches` : `Switch ${picture.controller?.switch ?? ""}`} with ${ranks.length} ranks`;
  if (svg.getAttribute("aria-label") !== said) svg.setAttribute("aria-label", said);
  legend(links, svg);
  byId("in-words").hidden = !picture.links.length;
  list(byId("links"), picture.links.map(words), (text) => make("li", {}, text));
}
const wireOf = (row, link) => (link.down ? "wire cut" : row.named?.kind === "link" ? "wire lossy" : row.look === "absent" ? "wire absent" : "wire");
function legend(links, svg) { // says what colours mean that are seen, and no others
  const trees = [...new Set(links.filter((link) => !link.gone).flatMap((link) => link.trees))].sort((one, other) => one - other);
  const seen = Object.keys(LEGEND).filter((kind) => svg.getElementsByClassName(kind).length || svg.getElementsByClassName(kind.replace("host", "dot")).length);
  const items = [...(trees.length > 1 ? trees.map((tree) => [`tree${tree % COLOURS}`, `tree ${tree}`]) : []), ...seen.map((kind) => [kind, LEGEND[kind]])];
  list(byId("legend"), items, ([kind, text]) => make("li", { class: kind }, make("i", { "aria-hidden": "true" }), text));
}
function words({ ends: [low, high], ports, trees, gone }) {
  const port = (at) => (ports.length ? ` (port ${ports[at]})` : "");
  const what = gone ? "is gone, and a job's tree needs it" : trees.length ? `tree ${trees.join(" and ")}` : "in no tree of a job";
  return `${called(low)}${port(0)} to ${called(high)}${port(1)}: ${what}`;
}
