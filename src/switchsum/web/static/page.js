// The live page: pictures come as server-sent events once a second; all texts are set as text, never as markup.
import { charts, strip } from "./charts.js";
import { byId, isBad, list, make, number, rows, setText, sortable, sum, table } from "./dom.js";
import { slotPackets } from "./slot.js";
import { colour, onTheme } from "./theme.js";
import { portsText, topology } from "./topology.js";

const HOUR_S = 3600, ACROSS = 64, SELDOM_S = 0.9, STALE_S = 2;
const FIGURES = ["a step takes", "ranks wait", "sent", "collectives a second", "lost frames", "density of sparse sums"];
const percent = (share) => `${number(100 * share)} %`;
const STATES = { f: "free", i: "filling", c: "complete", s: "stale" };
const history = new Map(); // job -> [[seconds, collectives, bytes a second, seconds a step, lost, rank 0 waits, rank 1 waits, ...], ...]
const inView = new Set(); // cards of jobs, whose slots are drawn in each picture; all else once a second: nobody reads faster
const viewing = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) isIntersecting ? inView.add(target) : inView.delete(target);
}, { rootMargin: "25%" });
let started = null, lostSince = null, last = null, colours = null, drawnAt = 0;

const clock = () => new Date().toLocaleTimeString();

function trouble(picture) {
  const found = picture.alerts ?? (picture.trouble ? [{ text: `${picture.trouble}.`, advice: "" }] : []);
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
  const ranks = table("Ranks: which part of the last ten seconds each waits for others, and what it does",
    [["rank"], ["waits", "n"], ["does"], ["computes", "n w"], ["MB/s", "n"], ["lost", "n"], ["host", "w"], ["a second", "n w"], ["density", "n w"], ["port", "n w"], ["link", "w"]]);
  const waiting = table("Slots that wait, and who is missing in them", [["slots"], ["round", "n"], ["missing"], ["seconds", "n"]]);
  card.parts = { title: make("h2"), findings: make("ul", { class: "findings" }), figures: make("dl", { class: "figures" }),
    packets: slotPackets(name), ranks, grid, legend: make("ul", { class: "legend" }), waiting, curves: charts(name), strip: make("div", { class: "strip" }), said: make("p", { class: "hint" }) };
  const { title, findings, figures, legend, curves, packets } = card.parts;
  card.order = sortable(ranks, [(one) => one.rank, (one) => one.waiting_share, (one) => one.does, (one) => one.computing_share,
    (one) => one.bytes_per_s, (one) => one.lost_share, (one) => one.host, (one) => one.collectives_per_s], () => card.job && showRanks(card, card.job));
  grid.addEventListener("click", (event) => { // keyboards have the form below
    const across = (event.offsetX / grid.clientWidth) * ACROSS, down = (event.offsetY / grid.clientHeight) * Number(grid.dataset.lines);
    const place = Math.floor(down) * ACROSS + Math.floor(across);
    if (place < Number(grid.dataset.count)) packets.open(Number(grid.dataset.first) + place);
  });
  list(figures, FIGURES, (term) => make("div", {}, make("dt", {}, term), make("dd")));
  list(legend, Object.keys(STATES), (letter) => make("li", { class: letter }, make("i", { "aria-hidden": "true" }), make("span")));
  viewing.observe(card);
  card.append(title, findings, figures, scroll(`Ranks of job ${name}`, ranks), make("h3", {}, "Who was the last to begin, step by step"), card.parts.strip,
    card.parts.said, make("h3", {}, "Over time"), ...curves.parts, make("h3", {}, "Slots"), grid, legend, ...packets.parts, scroll(`Slots of job ${name} that wait`, waiting));
  return card;
}
function showWaiting({ parts }, job) {
  const name = (rank) => {
    const row = job.ranks.find((one) => one.rank === rank);
    return row?.host ? `rank ${rank} (${row.host})` : `rank ${rank}`;
  };
  const waiting = job.waiting.filter((one) => one.for_s >= STALE_S); // others fill while one looks
  parts.waiting.hidden = !waiting.length;
  rows(parts.waiting.tBodies[0], waiting, (one) => ({ bad: true, values: [[one.slots, "text"], [one.number, "n"],
    [one.missing.map(name).join(", ")], [number(one.for_s), "n"]] }));
}
function showJob(card, job) {
  const { parts } = card, [rate, bytes, step, lost] = job.rates;
  card.job = job;
  setText(parts.title, job.headline);
  list(parts.findings, job.findings.filter((one) => !isBad(one)), finding); // the others are told above, once for all jobs
  const density = job.ranks.find((row) => row.density !== null && row.density !== undefined)?.density;
  const waits = job.ranks.length ? sum(job.ranks, "waiting_share") / job.ranks.length : 0;
  const figures = [step ? `${number(1000 * step)} ms` : "–", percent(waits), `${number(bytes / 1e6)} MB/s`, number(rate), percent(lost),
    density === undefined ? "–" : percent(density)];
  figures.forEach((text, at) => setText(parts.figures.children[at].lastChild, text));
  showRanks(card, job);
  const late = job.ranks.find((row) => row.late_s > 0)?.rank;
  strip(parts.strip, job.strip ?? [], job.workers, late);
  setText(parts.said, job.strip?.length ? `A line for each rank, the newest step on the right. ${late === undefined ? "Grey: each is the last now and then." : `Rank ${late} is the one that others wait for.`}` : "No steps are known yet.");
}
function showRanks({ parts, order }, job) {
  const named = new Set(job.findings.filter(isBad).flatMap((one) => one.ranks));
  rows(parts.ranks.tBodies[0], order(job.ranks), (row) => ({ bad: named.has(row.rank), values: [[row.rank], [percent(row.waiting_share), "n bar", row.waiting_share],
    [row.does, "text"], [percent(row.computing_share), "n bar soft w", row.computing_share], [number(row.bytes_per_s / 1e6), "n"],
    [row.lost_share ? percent(row.lost_share) : "–", "n"], [row.host || "not known yet", "w"], [number(row.collectives_per_s), "n w"],
    [row.density === null || row.density === undefined ? "–" : percent(row.density), "n w"], [where(row), "n w"], [row.link, "w"]] }));
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
  colours ??= Object.fromEntries(Object.entries(STATES).map(([letter, state]) => [letter, colour(state)]));
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
  for (const [name, card] of there) if (!names.has(name)) { card.remove(); card.parts.curves.forget(); viewing.unobserve(card); inView.delete(card); }
  for (const job of picture.jobs) {
    let card = there.get(job.job);
    if (!card) { card = newJob(job.job); cards.append(card); }
    const points = history.get(job.job) ?? [];
    points.push([now, ...job.rates]);
    while (points.length && points[0][0] < now - HOUR_S) points.shift();
    history.set(job.job, points);
    const isDue = !(now - card.drawn < SELDOM_S);
    if (isDue || inView.has(card)) grid(card.parts, job);
    if (!isDue) continue;
    card.drawn = now;
    showJob(card, job);
    showWaiting(card, job);
    card.parts.curves.show(points);
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
onTheme(() => { colours = null; last && show(last); });
open();
