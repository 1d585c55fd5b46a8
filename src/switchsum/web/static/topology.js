// Switches, the links between them with the trees that use them, and hosts below their switch, as a drawing.
import { byId, draw, isBad, list, make, number, setText } from "./dom.js";

const SWITCH = 150, HOST = 104, GAP = 14, LEVEL = 96, CHIP = 46, FOLDED = 168, DOT = 14, DOTS = 10, COLOURS = 4, MANY = 8;
const called = (name) => name || "switch";
const opened = new Map(); // switch -> whether its hosts are drawn one by one, where the reader has chosen

function ranksBySwitch(picture) {
  const found = new Map(picture.switches.map((one) => [one.switch, []]));
  for (const job of picture.jobs) {
    const bad = new Set(job.findings.filter(isBad).flatMap((one) => one.ranks));
    for (const row of job.ranks) {
      const place = found.has(row.switch) ? row.switch : picture.switches[0]?.switch;
      found.get(place)?.push({ ...row, bad: bad.has(row.rank) });
    }
  }
  return found;
}
function widthOf(ranks, isOpen) {
  if (!ranks.length) return SWITCH;
  return Math.max(SWITCH, isOpen ? ranks.length * (HOST + GAP) - GAP : FOLDED);
}
function layOut(picture, hosts, across) { // which leaves are folded, and where each switch is
  const levels = [];
  for (const one of picture.switches) (levels[one.level] ??= []).push(one.switch);
  const open = new Map([...hosts].map(([name, ranks]) => [name, opened.get(name) ?? ranks.length <= MANY]));
  const rowWidth = (row) => row.reduce((total, name) => total + widthOf(hosts.get(name), open.get(name)) + 2 * GAP, 0);
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
      const own = widthOf(hosts.get(name), open.get(name)) + 2 * GAP + spare;
      places.set(name, { x: left + own / 2, y: top });
      left += own;
    }
    top += LEVEL + Math.max(0, ...row.map((name) => heightOf(hosts.get(name), open.get(name))));
  }
  return { open, width, height: top - LEVEL + 62, places };
}
function heightOf(ranks, isOpen) {
  if (!ranks.length) return 0;
  return isOpen ? CHIP + 66 : 66 + DOT * Math.ceil(ranks.length / DOTS) + 26;
}
function box({ x, y }, wide, high, texts, kind) {
  const words = texts.map((text, at) =>
    draw("text", { x, y: y + 17 + 13 * at, "text-anchor": "middle", ...(at ? { class: "soft" } : {}) }, text));
  return { parts: [draw("rect", { x: x - wide / 2, y, width: wide, height: high, rx: 5, class: kind }), ...words], last: words.at(-1) };
}
function build(picture, hosts, across) {
  const { open, width, height, places } = layOut(picture, hosts, across), boxes = new Map(), drawn = [];
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  const wires = picture.links.map((link) => {
    const [low, high] = link.ends.map((end) => places.get(end));
    const level = low.y === high.y, lines = (link.trees.length ? link.trees : [-1]).map((tree, at) => {
      const shift = 8 * at, kind = link.gone ? "bad" : tree < 0 ? "idle" : `tree${tree % COLOURS}`;
      const side = Math.sign(high.x - low.x) * (SWITCH / 2);
      return draw("line", level
        ? { x1: low.x + side, y1: low.y + 20 + shift, x2: high.x - side, y2: high.y + 20 + shift, class: `wire ${kind}` }
        : { x1: low.x + shift, y1: low.y, x2: high.x + shift, y2: high.y + 40, class: `wire ${kind}` });
    });
    const title = draw("title");
    lines[0].append(title);
    svg.append(...lines);
    return { lines, title };
  });
  const later = [];
  for (const [name, ranks] of hosts) {
    const at = places.get(name);
    if (!ranks.length) continue;
    const top = at.y + 40 + 34, all = { name, ranks, hosts: [], isOpen: open.get(name) };
    if (all.isOpen) {
      ranks.forEach((row, place) => {
        const x = at.x + (place - (ranks.length - 1) / 2) * (HOST + GAP);
        const lines = row.links.map((one, link) => {
          const from = places.get(one.switch) ?? at, shift = 10 * (link - (row.links.length - 1) / 2), bus = top - 12 - 6 * link;
          return draw("polyline", { points: `${from.x + shift},${from.y + 40} ${from.x + shift},${bus} ${x + shift},${bus} ${x + shift},${top}`, class: "wire" });
        });
        const { parts, last } = box({ x, y: top }, HOST, CHIP, [`${row.job}/${row.rank}`.slice(0, 15), (row.host || "not known").slice(0, 16), ""], "host");
        svg.append(...lines);
        later.push(...parts);
        all.hosts.push({ lines, frame: parts[0], last });
      });
    } else { // one line for all of them, and a dot for each
      const line = draw("line", { x1: at.x, y1: at.y + 40, x2: at.x, y2: top, class: "wire" });
      const rows = Math.ceil(ranks.length / DOTS), { parts, last } = box({ x: at.x, y: top }, FOLDED, 24 + DOT * rows, [`${ranks.length} ranks`], "host");
      svg.append(line);
      later.push(...parts);
      all.line = line;
      all.label = last;
      ranks.forEach((row, place) => {
        const dot = draw("rect", { x: at.x - (DOTS * DOT) / 2 + DOT * (place % DOTS), y: top + 22 + DOT * Math.floor(place / DOTS), width: DOT - 3, height: DOT - 3, class: "dot" });
        const title = draw("title");
        dot.append(title);
        later.push(dot);
        all.hosts.push({ lines: [], frame: dot, title });
      });
    }
    drawn.push(all);
  }
  for (const one of picture.switches) {
    const { parts, last } = box(places.get(one.switch), SWITCH, 40, [called(one.switch).slice(0, 20), ""], "switch");
    boxes.set(one.switch, { frame: parts[0], last });
    const ranks = hosts.get(one.switch), group = draw("g");
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
  const look = `${(1 + 5 * load).toFixed(1)} ${(0.35 + 0.65 * load).toFixed(2)}`;
  if (line.dataset.look !== look) { line.dataset.look = look; [line.style.strokeWidth, line.style.opacity] = look.split(" "); }
  if (line.getAttribute("class") !== kind) line.setAttribute("class", kind);
}
function mark(frame, kind) {
  if (frame.getAttribute("class") !== kind) frame.setAttribute("class", kind);
}
export function portsText(row, named = (link) => `${link.port}`) {
  return row.links.map((one) => `${named(one)}${one.down ? " (down)" : ""}`).join(", ") || "–";
}
export function topology(picture) {
  const hosts = ranksBySwitch(picture), target = byId("topology"), { switches, links } = picture, ranks = [...hosts.values()].flat();
  topology.again = () => { delete target.dataset.shown; topology(picture); };
  const most = Math.max(1e5, ...ranks.map((row) => row.bytes_per_s)), busiest = Math.max(1, ...links.map((one) => one.per_s));
  const across = Math.max(300, Math.floor(target.clientWidth));
  const key = JSON.stringify([across, switches.map((one) => [one.switch, one.level]), links.map((one) => [one.ends, one.trees, one.gone]),
    ranks.map((row) => [row.job, row.rank, row.host, row.links.map((one) => one.switch)])]);
  if (target.dataset.shown !== key) { // else only rates and states differ
    target.drawn = build(picture, hosts, across);
    target.replaceChildren(target.drawn.svg);
    target.dataset.shown = key;
  }
  const { svg, boxes, wires, drawn } = target.drawn;
  for (const one of switches) {
    const { frame, last } = boxes.get(one.switch);
    mark(frame, one.state === "away" ? "switch bad" : "switch");
    setText(last, one.state === "away" ? "away" : `${number(Math.round(one.per_s))} contributions/s`);
  }
  links.forEach((link, place) => {
    const { lines, title } = wires[place];
    for (const line of lines) light(line, link.per_s / busiest, line.getAttribute("class"));
    setText(title, `${words(link)}, ${number(Math.round(link.per_s))} partial sums/s`);
  });
  for (const leaf of drawn) {
    const rows = hosts.get(leaf.name), isBadly = rows.some((row) => row.bad);
    rows.forEach((row, place) => {
      const { lines, frame, last, title } = leaf.hosts[place], said = `port ${portsText(row)}, ${number(row.bytes_per_s / 1e6)} MB/s`;
      row.links.forEach((link, at) => lines[at] && light(lines[at], (link.share * row.bytes_per_s) / most, row.bad || link.down ? "wire bad" : "wire"));
      mark(frame, `${title ? "dot" : "host"}${row.bad ? " bad" : ""}`);
      if (last) setText(last, said);
      if (title) setText(title, `${row.job}/${row.rank} at ${row.host || "a host not known"}: ${said}`);
    });
    if (leaf.line) {
      light(leaf.line, Math.min(1, rows.reduce((sum, row) => sum + row.bytes_per_s, 0) / (most * rows.length)), isBadly ? "wire bad" : "wire");
      const bad = rows.filter((row) => row.bad).length;
      setText(leaf.label, `${rows.length} ranks${bad ? `, ${bad} named above` : ""}`);
    }
  }
  const said = `${switches.length > 1 ? `${switches.length} switches` : `Switch ${picture.controller?.switch ?? ""}`} with ${ranks.length} ranks`;
  if (svg.getAttribute("aria-label") !== said) svg.setAttribute("aria-label", said);
  // The drawing in words, which is its legend, too.
  list(byId("links"), links.map(words), (text, at) => make("li", { class: kindOf(links[at]) }, make("i", { "aria-hidden": "true" }), text));
}
const kindOf = (link) => (link.gone ? "gone" : link.trees.length ? `tree${link.trees[0] % COLOURS}` : "idle");
function words({ ends: [low, high], ports, trees, gone }) {
  const port = (at) => (ports.length ? ` (port ${ports[at]})` : "");
  const what = gone ? "is gone, and a job's tree needs it" : trees.length ? `tree ${trees.join(" and ")}` : "in no tree of a job";
  return `${called(low)}${port(0)} to ${called(high)}${port(1)}: ${what}`;
}
