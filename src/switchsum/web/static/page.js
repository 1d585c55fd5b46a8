// The live page: pictures come as server-sent events once a second; all texts are set as text, never as markup.
import { byId, draw, isBad, list, make, number, rows, setText, sum, table } from "./dom.js";
import { slotPackets } from "./slot.js";
import { portsText, topology } from "./topology.js";

const MINUTES = 5, MOST = MINUTES * 60, ACROSS = 64, SELDOM_S = 0.9;
const FIGURES = ["collectives finished", "collectives a second", "sent, MB/s", "repeats a second", "lost", "density of sparse sums"];
const STATES = { f: "free", i: "filling", c: "complete", s: "stale" };
const history = new Map(); // job -> [[seconds, collectives, bytes, repeats a second], ...]
const isDark = matchMedia("(prefers-color-scheme: dark)");
const inView = new Set(); // cards of jobs, whose slots are drawn in each picture; all else once a second: nobody reads faster
const viewing = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) isIntersecting ? inView.add(target) : inView.delete(target);
}, { rootMargin: "25%" });
let started = null, lostSince = null, last = null, colours = null, drawnAt = 0;

const clock = () => new Date().toLocaleTimeString();

function trouble(picture) {
  const found = [];
  if (picture.trouble) found.push({ text: `The switch: ${picture.trouble}`, advice: "" });
  for (const one of picture.switches.filter((one) => one.state === "away"))
    if (one.switch) found.push({ text: `Switch ${one.switch} (${one.p4runtime}) is away${one.trouble ? `: ${one.trouble}` : ""}.`, advice: "" });
  for (const text of picture.faults ?? []) found.push({ text: `Links: ${text}.`, advice: "" });
  for (const one of picture.refused ?? []) {
    const who = one.rank >= 0 ? `Rank ${one.rank} of job “${one.job}” was not let in` : `Job “${one.job}” was not made`;
    const slots = picture.jobs.some((job) => job.job === one.job) ? "" : ` It has no slots; ${picture.slots_text}.`;
    const times = one.times > 1 ? `, ${one.times} times` : "";
    found.push({ text: `${who}${times}: ${one.reason}.${slots}`, advice: "" });
  }
  for (const job of picture.jobs)
    for (const one of job.findings.filter(isBad)) found.push({ text: `Job ${job.job}: ${one.text}`, advice: one.advice });
  // Seconds that pass are no news: a text that differs in numbers alone replaces the old one without being read out.
  const target = byId("alerts"), kinds = JSON.stringify(found.map((one) => one.text.replace(/\d+/g, "#")));
  target.setAttribute("aria-live", target.dataset.kinds === kinds ? "off" : "polite");
  target.dataset.kinds = kinds;
  list(target, found.length ? found : [{ text: "Nothing.", advice: "", fine: true }], finding);
}
function finding(one) {
  const item = make("li", { class: one.fine || one.kind === "fine" ? "" : "bad" }, one.text);
  if (one.advice) item.append(make("span", { class: "advice" }, one.advice));
  return item;
}

function newJob(name) {
  const card = make("section", { "aria-label": `Job ${name}` });
  card.dataset.job = name;
  const grid = make("canvas", { class: "slots", role: "img" });
  const scroll = (label, inside) => make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, inside);
  const ranks = table("Ranks", [["rank"], ["host"], ["does"], ["collectives", "n"], ["a second", "n"], ["MB/s", "n"],
    ["repeats/s", "n"], ["lost", "n"], ["density", "n"], ["port", "n"], ["link"]]);
  const waiting = table("Slots that wait, and who is missing in them", [["slots"], ["round", "n"], ["missing"], ["seconds", "n"]]);
  card.parts = { title: make("h2"), findings: make("ul", { class: "findings" }), figures: make("dl", { class: "figures" }),
    packets: slotPackets(name), ranks, grid, legend: make("ul", { class: "legend" }), waiting, curve: make("div") };
  const { title, findings, figures, legend, curve, packets } = card.parts;
  grid.addEventListener("click", (event) => { // keyboards have the form below
    const across = (event.offsetX / grid.clientWidth) * ACROSS, down = (event.offsetY / grid.clientHeight) * Number(grid.dataset.lines);
    const place = Math.floor(down) * ACROSS + Math.floor(across);
    if (place < Number(grid.dataset.count)) packets.open(Number(grid.dataset.first) + place);
  });
  list(figures, FIGURES, (term) => make("div", {}, make("dt", {}, term), make("dd")));
  list(legend, Object.keys(STATES), (letter) => make("li", { class: letter }, make("i", { "aria-hidden": "true" }), make("span")));
  viewing.observe(card);
  card.append(title, findings, figures, scroll(`Ranks of job ${name}`, ranks), make("h3", {}, "Slots"), grid, legend, ...packets.parts,
    scroll(`Slots of job ${name} that wait`, waiting), make("h3", {}, `Last ${MINUTES} minutes`), curve);
  return card;
}
function showWaiting({ parts }, job) {
  const name = (rank) => {
    const row = job.ranks.find((one) => one.rank === rank);
    return row?.host ? `rank ${rank} (${row.host})` : `rank ${rank}`;
  };
  parts.waiting.hidden = !job.waiting.length;
  rows(parts.waiting.tBodies[0], job.waiting, (one) => ({ bad: one.for_s >= 2, values: [[one.slots], [one.number, "n"],
    [one.missing.map(name).join(", ")], [number(one.for_s), "n"]] }));
}
function showJob({ parts }, job) {
  if (parts.title.textContent !== job.headline) parts.title.textContent = job.headline;
  list(parts.findings, job.findings, finding);
  const frames = sum(job.ranks, "frames_sent"), lost = sum(job.ranks, "lost");
  const [rate, bytes, repeats] = job.rates;
  const density = job.ranks.find((row) => row.density !== null && row.density !== undefined)?.density;
  const figures = [number(job.collectives), number(rate), number(bytes / 1e6), number(repeats),
    frames ? `${number(lost)} of ${number(frames)}` : "–", density === undefined ? "–" : `${number(100 * density)} %`];
  figures.forEach((text, at) => setText(parts.figures.children[at].lastChild, text));
  const named = new Set(job.findings.filter(isBad).flatMap((one) => one.ranks));
  rows(parts.ranks.tBodies[0], job.ranks, (row) => ({ bad: named.has(row.rank), values: [[row.rank], [row.host || "not known yet"],
    [row.does, "text"], [number(row.collective), "n"], [number(row.collectives_per_s), "n"], [number(row.bytes_per_s / 1e6), "n"],
    [number(row.repeats_per_s), "n"], [number(row.lost), "n"],
    [row.density === null || row.density === undefined ? "–" : `${number(100 * row.density)} %`, "n"], [where(row), "n"], [row.link]] }));
}
const where = (row) => portsText(row, (link) => (link.switch ? `${link.switch} ${link.port}` : `${link.port}`));
function grid(parts, job) {
  const counts = Object.fromEntries(Object.keys(STATES).map((letter) => [letter, 0]));
  for (const letter of job.slots) counts[letter] += 1;
  const said = Object.entries(STATES).map(([letter, state]) => `${counts[letter]} ${state}`).join(", ");
  parts.grid.setAttribute("aria-label", `${job.slots.length} slots from ${job.first_slot} on: ${said}`);
  Object.keys(STATES).forEach((letter, at) => setText(parts.legend.children[at].lastChild, `${counts[letter]} ${STATES[letter]}`));
  const across = ACROSS, size = 12, lines = Math.max(1, Math.ceil(job.slots.length / across));
  Object.assign(parts.grid.dataset, { lines, count: job.slots.length, first: job.first_slot });
  parts.packets.suggest(job.first_slot);
  if (colours?.isDark !== isDark.matches) {
    const style = getComputedStyle(document.documentElement);
    colours = Object.fromEntries(Object.entries(STATES).map(([letter, state]) => [letter, style.getPropertyValue(`--${state}`)]));
    colours.isDark = isDark.matches;
  }
  let before = parts.shown ?? {};
  if (before.slots?.length !== job.slots.length || before.colours !== colours) {
    before = { slots: "" };
    parts.grid.width = across * size; parts.grid.height = lines * size; // which empties it
    parts.grid.hidden = !job.slots.length;
  }
  parts.shown = { slots: job.slots, colours };
  const pen = parts.grid.getContext("2d");
  [...job.slots].forEach((letter, place) => {
    if (letter === before.slots[place]) return;
    pen.fillStyle = colours[letter];
    pen.fillRect((place % across) * size, Math.floor(place / across) * size, size - 1, size - 1);
  });
}
function curve(target, points, label) {
  const width = 600, height = 90, end = Date.now() / 1000, top = Math.max(1e6, ...points.map((one) => one[2]), 0);
  const repeats = Math.max(1, ...points.map((one) => one[3]), 0);
  const place = (column, most) => points.map((one) =>
    `${(width * (1 - (end - one[0]) / (MINUTES * 60))).toFixed(1)},${(height - 5 - (height - 25) * (one[column] / most)).toFixed(1)}`).join(" ");
  if (!target.parts) {
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
    const sent = draw("polyline", { class: "curve" }), again = draw("polyline", { class: "curve bad" });
    const text = draw("text", { x: 0, y: 12, class: "soft" });
    svg.append(sent, again, text);
    target.replaceChildren(svg);
    target.parts = { svg, sent, again, text };
  }
  const { svg, sent, again, text } = target.parts;
  sent.setAttribute("points", place(2, top)); again.setAttribute("points", place(3, repeats));
  svg.setAttribute("aria-label", label); text.textContent = label;
}

function show(picture) {
  last = picture;
  const now = Date.now() / 1000, about = picture.controller;
  if (about) byId("controller").textContent =
    `Switch ${about.switch}, ${about.lanes_per_frame} lanes, ${number(about.free_slots)} slots free; switchsum ${about.package_version}`;
  if (now - drawnAt >= SELDOM_S) {
    drawnAt = now;
    trouble(picture);
    topology(picture);
    counters(picture);
  }
  const cards = byId("jobs"), there = new Map([...cards.children].map((card) => [card.dataset.job, card]));
  const names = new Set(picture.jobs.map((job) => job.job));
  for (const [name, card] of there) if (!names.has(name)) { card.remove(); viewing.unobserve(card); inView.delete(card); }
  for (const job of picture.jobs) {
    let card = there.get(job.job);
    if (!card) { card = newJob(job.job); cards.append(card); }
    const points = history.get(job.job) ?? [];
    points.push([now, ...job.rates]);
    while (points.length > MOST || (points.length && points[0][0] < now - MINUTES * 60)) points.shift();
    history.set(job.job, points);
    const isDue = !(now - card.drawn < SELDOM_S);
    if (isDue || inView.has(card)) grid(card.parts, job);
    if (!isDue) continue;
    card.drawn = now;
    showJob(card, job);
    showWaiting(card, job);
    const [, , rate, repeats] = points.at(-1);
    curve(card.parts.curve, points, `sent ${number(rate / 1e6)} MB/s, in blue; repeats ${number(repeats)} a second, in red`);
  }
}

function counters(picture) {
  const order = [...picture.counters].sort((one, other) => other.packets - one.packets);
  rows(byId("counters").tBodies[0], order, (one) => ({ bad: false, values: [[one.reason.replaceAll("_", " ")],
    [number(one.packets), "n"], [number(one.packets_per_s), "n"], [number(one.bytes), "n"]] }));
}

function say(text, isLost) {
  const target = byId("connection");
  target.className = isLost ? "lost" : "";
  if (target.textContent !== text) target.textContent = text;
}
function open() {
  const events = new EventSource("events");
  events.onmessage = (message) => {
    const picture = JSON.parse(message.data);
    if (lostSince !== null || started === null)
      say(started !== null && picture.started !== started ? `Connected again at ${clock()}; the controller was restarted.` : "Connected.", false);
    [started, lostSince] = [picture.started, null];
    show(picture);
  };
  events.addEventListener("history", (message) => { // the server's minutes; of before it was started what is known here
    const now = Date.now() / 1000;
    for (const [job, points] of Object.entries(JSON.parse(message.data))) {
      const first = now - (points[0]?.[0] ?? 0), before = (history.get(job) ?? []).filter(([at]) => at < first);
      history.set(job, [...before, ...points.map(([age, ...rates]) => [now - age, ...rates])]);
    }
  });
  events.onerror = () => {
    lostSince ??= clock();
    say(`No controller since ${lostSince}, trying again; what is shown is of before.`, true);
    if (events.readyState === EventSource.CLOSED) { // refused, as where too many pages are open: the browser gives up
      events.close();
      setTimeout(open, 3000);
    }
  };
}
addEventListener("resize", () => last && topology(last));
isDark.addEventListener("change", () => last && show(last));
open();
