// Switches, the links between them with the trees that use them, and the ranks with their links, as a drawing.
import { byId, draw, isBad, list, make, number, setText } from "./dom.js";

const CELL = 150, ROW = 80, COLOURS = 4;
const called = (name) => name || "switch";

function ranksOf(picture) { // those of one switch side by side
  const order = new Map(picture.switches.map((one, place) => [one.switch, place]));
  const ranks = picture.jobs.flatMap((job) => job.ranks.map((row) => ({
    ...row, bad: job.findings.some((one) => isBad(one) && one.ranks.includes(row.rank)),
  })));
  return ranks.sort((one, other) => (order.get(one.switch) ?? 0) - (order.get(other.switch) ?? 0));
}
function inRows(count, across, top) { // places of boxes, from left to right in as many rows as it takes
  const lines = Math.max(1, Math.ceil(count / across)), wide = Math.ceil(count / lines);
  return Array.from({ length: count }, (_, at) => {
    const line = Math.floor(at / wide), inLine = Math.min(wide, count - line * wide);
    return { x: (across * CELL * (2 * (at - line * wide) + 1)) / (2 * inLine), y: top + line * ROW };
  });
}
function box({ x, y }, height, texts) {
  const words = texts.map((text, at) =>
    draw("text", { x, y: y + 20 + (at ? 1 + 15 * at : 0), "text-anchor": "middle", ...(at ? { class: "soft" } : {}) }, text));
  return { parts: [draw("rect", { x: x - 70, y, width: 140, height, rx: 6 }), ...words], last: words.at(-1) };
}
function build(picture, ranks, across) {
  const width = across * CELL, levels = [];
  for (const one of picture.switches) (levels[one.level] ??= []).push(one);
  const places = new Map(), boxes = new Map();
  let top = 8;
  for (const level of levels.filter(Boolean)) {
    inRows(level.length, across, top).forEach((place, at) => places.set(level[at].switch, place));
    top = Math.max(...level.map((one) => places.get(one.switch).y)) + ROW + 12;
  }
  for (const one of picture.switches) boxes.set(one.switch, box(places.get(one.switch), 46, [called(one.switch).slice(0, 20), ""]));
  const spots = inRows(ranks.length, across, top), height = (spots.at(-1)?.y ?? 0) + 70;
  const wires = picture.links.map((link) => {
    const [low, high] = link.ends.map((end) => places.get(end));
    const lines = (link.trees.length ? link.trees : [-1]).map((tree, at) => {
      const shift = 8 * at, kind = link.gone ? "bad" : tree < 0 ? "idle" : `tree${tree % COLOURS}`;
      return draw("line", { x1: low.x + shift, y1: low.y + (low.y > high.y ? 0 : 23), x2: high.x + shift, y2: high.y + 46, class: `wire ${kind}` });
    });
    const title = draw("title");
    lines[0].append(title);
    return { lines, title };
  });
  const hosts = ranks.map((row, at) => {
    const spot = spots[at];
    const lines = row.links.map((one, link) => {
      const from = places.get(one.switch) ?? { x: width / 2, y: 0 };
      const shift = 12 * (link - (row.links.length - 1) / 2);
      return draw("line", { x1: from.x + shift, y1: from.y + 46, x2: spot.x + shift, y2: spot.y, class: "wire" });
    });
    const { parts, last } = box(spot, 58, [`${row.job}/${row.rank}`.slice(0, 20), (row.host || "host not known").slice(0, 22), ""]);
    return { lines, parts, last };
  });
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  svg.append(...wires.flatMap((one) => one.lines), ...hosts.flatMap((one) => one.lines), ...hosts.flatMap((one) => one.parts),
    ...[...boxes.values()].flatMap((one) => one.parts));
  return { svg, boxes, wires, hosts };
}
function light(line, load, kind) {
  const look = `${(1.5 + 8 * load).toFixed(1)} ${(0.35 + 0.65 * load).toFixed(2)}`;
  if (line.dataset.look !== look) { line.dataset.look = look; [line.style.strokeWidth, line.style.opacity] = look.split(" "); }
  if (line.getAttribute("class") !== kind) line.setAttribute("class", kind);
}
export function portsText(row, named = (link) => `${link.port}`) {
  return row.links.map((one) => `${named(one)}${one.down ? " (down)" : ""}`).join(", ") || "–";
}
export function topology(picture) {
  const ranks = ranksOf(picture), target = byId("topology"), { switches, links } = picture;
  const most = Math.max(1e5, ...ranks.map((row) => row.bytes_per_s)), busiest = Math.max(1, ...links.map((one) => one.per_s));
  const needed = Math.max(2, ranks.length, switches.length);
  const across = Math.max(1, Math.min(needed, Math.max(2, Math.floor(target.clientWidth / CELL))));
  const key = JSON.stringify([across, switches.map((one) => [one.switch, one.level]), links.map((one) => [one.ends, one.trees, one.gone]),
    ranks.map((row) => [row.job, row.rank, row.host, row.links.map((one) => one.switch)])]);
  if (target.dataset.shown !== key) { // else only rates and states differ
    target.drawn = build(picture, ranks, across);
    target.replaceChildren(target.drawn.svg);
    target.dataset.shown = key;
  }
  const { svg, boxes, wires, hosts } = target.drawn;
  for (const one of switches) {
    const { parts: [frame], last } = boxes.get(one.switch);
    frame.setAttribute("class", one.state === "away" ? "bad" : "");
    setText(last, one.state === "away" ? "away" : `${number(one.per_s)} contributions/s`);
  }
  links.forEach((link, place) => {
    const { lines, title } = wires[place];
    for (const line of lines) light(line, link.per_s / busiest, line.getAttribute("class"));
    setText(title, `${words(link)}, ${number(link.per_s)} partial sums/s`);
  });
  ranks.forEach((row, place) => {
    const { lines, last } = hosts[place];
    row.links.forEach((link, at) => light(lines[at], (link.share * row.bytes_per_s) / most, row.bad || link.down ? "wire bad" : "wire"));
    setText(last, `port ${portsText(row)}, ${number(row.bytes_per_s / 1e6)} MB/s`);
  });
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
