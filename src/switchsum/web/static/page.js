// The live page: pictures come as server-sent events once a second; all texts are set as text, never as markup.
import { charts, strip } from "./charts.js";
import { byId, clock, isBad, list, make, namedBy, number, percent, rows, setText, short, sortable, table } from "./dom.js";
import { slotPackets } from "./slot.js";
import { colour, onTheme } from "./theme.js";
import { portsText, topology } from "./topology.js";

const HOUR_S = 3600, ACROSS = 64, SELDOM_S = 0.9, STALE_S = 2, MANY_RANKS = 12, FEW_RANKS = 6, FEW_KINDS = 6;
const FIGURES = ["a step takes", "ranks wait", "sent", "collectives a second", "lost frames", "density, all ranks together"];
const SLOW = ["congested", "late", "left out", "link", "refused", "silent", "starting", "taken", "waits"]; // what is said of these does not hold a job up
const COLUMNS = [["rank"], ["waits", "n"], ["does"], ["outside calls", "n w"], ["MB/s", "n"], ["lost", "n"], ["marked", "n w"], ["density", "n w"], ["calls/s", "n w"], ["host", "w"], ["port", "n w"], ["link", "w"]];
const KINDS = [["collective"], ["calls", "n w"], ["data moves", "n w"], ["ranks wait", "n"], ["last to begin"], ["others wait for it", "n w"]];
const STATES = { f: "free", i: "filling", c: "complete", s: "stale" };
const history = new Map(); // job -> its points, as charts.js has them
const inView = new Set(); // cards of jobs, whose slots are drawn in each picture; all else once a second: nobody reads faster
const viewing = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) isIntersecting ? inView.add(target) : inView.delete(target);
}, { rootMargin: "25%" });
let started = null, lostSince = null, last = null, colours = null, drawnAt = 0;


const ICONS = { good: "<circle cx='8' cy='8' r='7' fill='%2323733a'/>", slow: "<path d='M8 1 16 15H0Z' fill='%23e08a00'/>", bad: "<path d='M1 1H15V15H1Z' fill='%23c62828'/>" };
const SHAPES = { good: "●", slow: "▲", bad: "■" }, WORST = ["bad", "slow", "good"]; // told by shape as well as by colour
function stateOf(job) { // how it is, in a word and in a look, and which share of the time the worst finding costs
  const worst = job.findings.find(isBad), stands = Math.max(0, ...job.ranks.map((row) => row.waiting_s));
  const isSlow = worst && SLOW.includes(worst.kind) && stands < STALE_S;
  const state = stands >= STALE_S ? `stands still for ${number(Math.round(stands))} s` : isSlow ? `${job.state}, slow` : job.state;
  return { look: !worst ? "good" : isSlow ? "slow" : "bad", state, cost: worst && isSlow && worst.cost < 1 ? worst.cost : null };
}
function summary(picture) {
  const told = picture.jobs.map((job) => ({ ...stateOf(job), job: job.job, step: job.rates[2] }));
  const isLost = Boolean(picture.trouble) && !told.some((one) => one.look === "bad");
  const look = isLost ? "bad" : WORST.find((one) => told.some((job) => job.look === one)) ?? "good";
  list(byId("summary"), told.length ? told : [{ look: isLost ? "bad" : "good", job: "No job", state: isLost ? "the switch does not answer" : "none is there", step: null, cost: null }], (one) =>
    make("li", { class: one.look }, make("strong", {}, `${SHAPES[one.look]} ${one.job}`), make("span", {}, one.state),
      ...(one.step ? [make("span", {}, `${number(1000 * one.step)} ms a step`)] : []),
      ...(one.cost ? [make("span", {}, `what is wrong costs ${percent(one.cost)} of the time`)] : [])));
  const worst = told.find((one) => one.look === look), title = `${SHAPES[look]} ${worst ? `${worst.job}: ${worst.state}` : isLost ? "no switch" : "no job"} – switchsum`;
  if (document.title !== title) document.title = title;
  if (byId("icon").dataset.look !== look) {
    byId("icon").dataset.look = look;
    byId("icon").href = `data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>${ICONS[look]}</svg>`;
  }
}
function trouble(picture) {
  const told = picture.alerts ?? (picture.trouble ? [{ text: "The controller cannot say how things are.", details: `${picture.trouble}.`, advice: "Read its log, and see whether its switch runs:", command: "switchsum switch list" }] : []);
  const found = told.filter((one) => one.kind !== "refused"), refused = told.filter((one) => one.kind === "refused");
  byId("refused").hidden = !refused.length;
  list(byId("refused").lastChild, refused, finding);
  // Seconds that pass are no news: a text that differs in numbers alone replaces the old one without being read out.
  const target = byId("alerts"), kinds = JSON.stringify(found.map((one) => one.text.replace(/\d+/g, "#")));
  target.setAttribute("aria-live", target.dataset.kinds === kinds ? "off" : "polite");
  target.dataset.kinds = kinds;
  list(target, found.length ? found : [{ text: "Nothing.", advice: "", fine: true }], finding);
}
function finding(one) {
  const isFine = one.fine || one.kind === "fine", item = make("li", { class: isFine ? "" : SLOW.includes(one.kind) ? "slow" : "bad" });
  item.append(isFine ? one.text : make("strong", {}, one.text));
  if (one.details) item.append(make("span", { class: "details" }, one.details));
  if (one.advice) item.append(make("span", { class: "advice" }, one.advice));
  if (one.command) item.append(make("code", { class: "command" }, one.command));
  return item;
}

function newJob(name) {
  const card = make("section", { "aria-label": `Job ${name}` });
  card.dataset.job = name;
  const grid = make("canvas", { class: "slots", role: "img" });
  const scroll = (label, inside) => make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, inside);
  const ranks = table("Ranks: which part of the last ten seconds each waits for others or the switch, and is outside calls; in the rest data moves", COLUMNS);
  const more = make("button", { type: "button" }), rest = make("p", { class: "hint" }, make("span"), " ", more);
  more.addEventListener("click", () => { card.isOpen = !card.isOpen; if (card.job) showRanks(card, card.job); });
  const kinds = table("", KINDS);
  const all = make("button", { type: "button" }), calls = make("div", {}, make("h3", {}, "Collectives"), scroll(`Collectives of job ${name}`, kinds), all);
  all.addEventListener("click", () => { card.hasAll = !card.hasAll; if (card.job) showKinds(card, card.job); });
  const waiting = table("Slots that wait, and who is missing in them", [["slots"], ["round", "n"], ["missing"], ["seconds", "n"]]);
  card.parts = { title: make("h2"), findings: make("ul", { class: "findings" }), figures: make("dl", { class: "figures" }),
    packets: slotPackets(name), ranks, rest, kinds, all, calls, grid, legend: make("ul", { class: "legend" }), unread: make("p", { class: "hint" }), waiting, curves: charts(name), strip: make("div", { class: "strip" }), said: make("p", { class: "hint" }) };
  const { title, findings, figures, legend, curves, packets } = card.parts;
  card.order = sortable(ranks, [(one) => one.rank, (one) => one.waiting_share, (one) => one.does, (one) => one.computing_share,
    (one) => one.bytes_per_s, (one) => one.lost_share, (one) => one.marked_share, (one) => one.density ?? -1, (one) => one.collectives_per_s, (one) => one.host], () => card.job && showRanks(card, card.job));
  grid.addEventListener("click", (event) => { // keyboards have the form below
    const across = (event.offsetX / grid.clientWidth) * ACROSS, down = (event.offsetY / grid.clientHeight) * Number(grid.dataset.lines);
    const place = Math.floor(down) * ACROSS + Math.floor(across);
    const { count, first, own, ownFirst } = grid.dataset; // behind shared slots those of the job's own
    if (place < Number(count)) packets.open(place < Number(own) ? Number(first) + place : Number(ownFirst) + place - Number(own));
  });
  list(figures, FIGURES, (term) => make("div", {}, make("dt", {}, term), make("dd")));
  list(legend, Object.keys(STATES), (letter) => make("li", { class: letter }, make("i", { "aria-hidden": "true" }), make("span")));
  viewing.observe(card);
  card.parts.lower = make("div", {}, make("h3", {}, "Who was the last to begin, step by step"), card.parts.strip, card.parts.said, calls, make("h3", {}, "Over time"), ...curves.parts,
    make("h3", {}, "Slots"), card.parts.unread, grid, legend, ...packets.parts, scroll(`Slots of job ${name} that wait`, waiting));
  card.append(title, findings, figures, scroll(`Ranks of job ${name}`, ranks), rest, card.parts.lower);
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
  const { parts } = card, [rate, bytes, step, waits, lost, density] = job.rates;
  card.job = job;
  setText(parts.title, job.headline);
  list(parts.findings, job.findings.some(isBad) ? [] : job.findings, finding); // what is wrong is told above, once for all jobs
  parts.unread.hidden = job.slots.length > 0;
  setText(parts.unread, job.state === "stalled" ? "They are not read while a switch of the job is away." : "None is in use yet.");
  const isTold = job.ranks.some((row) => row.report_age_s >= 0), told = (text) => (isTold ? text : null);
  const longest = Math.max(0, ...job.ranks.map((row) => row.waiting_s)), stands = longest >= STALE_S ? longest : 0;
  const until = stands ? `Until the job came to stand still, ${number(Math.round(stands))} s ago` : "";
  parts.lower.hidden = !isTold && !job.slots.length && !job.collectives; // nothing has begun
  const figures = [stands ? `none for ${number(Math.round(stands))} s` : step ? `${number(1000 * step)} ms` : null, told(percent(waits)), told(`${number(bytes / 1e6)} MB/s`), told(number(rate)),
    told(percent(lost)), density === null ? null : percent(density)];
  figures.forEach((text, at) => {
    parts.figures.children[at].hidden = text === null; // not known: there are no steps, or no sparse sums
    setText(parts.figures.children[at].lastChild, text ?? "");
  });
  showRanks(card, job);
  showKinds(card, job);
  const late = job.ranks.find((row) => row.late_s > 0)?.rank;
  strip(parts.strip, job.strip ?? [], job.workers, late);
  const times = job.strip?.filter(([rank]) => rank === late).length, scattered = until ? `${until}, each rank was the last now and then.` : "Each rank is the last now and then.";
  setText(parts.said, !job.strip?.length ? "No steps are known yet." : late === undefined ? scattered : `Rank ${late} is the last in ${times} of these ${job.strip.length} steps: the others wait for it.`);
  setText(parts.kinds.caption, `${until ? `${until}; what` : "What"} a call takes on average, in ms, by kind, within the last minute. What takes longest comes first`);
}
function showRanks(card, job) {
  const { parts, order } = card, named = namedBy(job), isFolded = job.ranks.length > MANY_RANKS && !card.isOpen;
  const isSame = !named.size && new Set(job.ranks.map((row) => `${row.does} ${Math.round(100 * row.waiting_share)}`)).size === 1, few = isSame ? 1 : FEW_RANKS;
  const sorted = order(job.ranks), chosen = new Set([...sorted.filter((row) => named.has(row.rank)), ...sorted.filter((row) => !named.has(row.rank))].slice(0, few));
  const shown = isFolded ? sorted.filter((row) => chosen.has(row)) : sorted;
  parts.ranks.classList.toggle("plain", job.ranks.every((row) => row.density === null)); // without that column
  rows(parts.ranks.tBodies[0], shown, (row) => {
    const kind = named.get(row.rank)?.kind, look = (wrong, text) => (wrong ? `${text} ${SLOW.includes(kind) ? "slow" : "bad"}` : text);
    const told = (text) => (row.report_age_s < 0 ? "–" : text);
    return { bad: false, values: [[row.rank, look(kind, "")], [told(percent(row.waiting_share)), "n bar", row.waiting_share],
      [kind === "straggler" ? `${row.does}; the others wait for it` : isNarrow.matches ? row.does.split(",")[0] : row.does, look(kind && kind !== "link", "text")],
      [told(percent(row.computing_share)), "n bar soft w", row.computing_share], [told(number(row.bytes_per_s / 1e6)), "n"],
      [row.lost_share ? percent(row.lost_share) : "–", look(kind === "link", "n")], [row.marked_share ? percent(row.marked_share) : "–", look(kind === "congested", "n w")], [row.density === null ? "–" : percent(row.density), "n w density"],
      [told(number(row.collectives_per_s)), "n w"], [row.host || "not known yet", "w"], [where(row), "n w"], [row.link, "w"]] };
  });
  parts.rest.hidden = job.ranks.length <= MANY_RANKS;
  if (!parts.rest.hidden) setText(parts.rest.firstChild, isFolded ? restOf(sorted.filter((row) => !chosen.has(row)), named) : "");
  setText(parts.rest.lastChild, isFolded ? `Show all ${job.ranks.length} ranks` : "Show fewer ranks");
}
function showKinds(card, { kinds, findings }) {
  const { parts } = card, shown = card.hasAll ? kinds : kinds.slice(0, FEW_KINDS), late = findings.find((one) => one.kind === "late")?.ranks[0];
  const costs = (one) => (one.late_rank === late ? one.calls * one.late_ms : 0), most = Math.max(...kinds.map(costs));
  parts.calls.hidden = !kinds.length;
  rows(parts.kinds.tBodies[0], shown, (one) => {
    const look = most && costs(one) === most ? " slow" : ""; // before these the late rank loses most time
    return { bad: false, values: [[one.collective, `text${look}`], [number(one.calls), "n w"], [short(one.moving_ms), "n w"], [short(one.waiting_ms), "n"],
      [`rank ${one.late_rank}`, look.trim()], [short(one.late_ms), `n w${look}`]] };
  });
  parts.all.hidden = kinds.length <= FEW_KINDS;
  setText(parts.all, card.hasAll ? "Show fewer kinds" : `Show all ${kinds.length} kinds`);
}
function restOf(hidden, named) { // what is folded, in a sentence
  const shares = hidden.map((row) => row.waiting_share), low = percent(Math.min(...shares)), high = percent(Math.max(...shares));
  const bad = hidden.filter((row) => named.has(row.rank)).length;
  return `${hidden.length} more ranks${bad ? `, ${bad} of them marked,` : ""} wait ${low === high ? low : `${low} to ${high}`} of their time.`;
}
const isNarrow = matchMedia("(max-width: 40rem)"); // without the operation then
const where = (row) => portsText(row, (link) => (link.switch ? `${link.switch} ${link.port}` : `${link.port}`));
function grid(parts, job) {
  const counts = Object.fromEntries(Object.keys(STATES).map((letter) => [letter, 0]));
  for (const letter of job.slots) counts[letter] += 1;
  const said = Object.entries(STATES).map(([letter, state]) => `${counts[letter]} ${state}`).join(", ");
  parts.grid.setAttribute("aria-label", `${job.slots.length} slots from ${job.first_slot} on${job.own_place ? `, and from ${job.own_first_slot} on` : ""}: ${said}`);
  Object.keys(STATES).forEach((letter, at) => setText(parts.legend.children[at].lastChild, `${counts[letter]} ${STATES[letter]}`));
  const across = ACROSS, size = 12, lines = Math.max(1, Math.ceil(job.slots.length / across));
  Object.assign(parts.grid.dataset, { lines, count: job.slots.length, first: job.first_slot, own: job.own_place ?? job.slots.length, ownFirst: job.own_first_slot ?? 0 });
  parts.packets.suggest(job.first_slot);
  colours ??= Object.fromEntries(Object.entries(STATES).map(([letter, state]) => [letter, colour(state)]));
  let before = parts.shown ?? {};
  if (before.slots?.length !== job.slots.length || before.colours !== colours) {
    before = { slots: "" };
    parts.grid.width = across * size; parts.grid.height = lines * size; // which empties it
    parts.grid.hidden = parts.legend.hidden = !job.slots.length;
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
    `${picture.switches.length > 1 ? `${picture.switches.length} switches` : `Switch ${about.switch}`}, ${about.lanes_per_frame} lanes, ${number(about.free_slots)} slots free; switchsum ${about.package_version}`;
  if (now - drawnAt >= SELDOM_S) {
    drawnAt = now;
    summary(picture);
    trouble(picture);
    topology(picture);
    counters(picture);
  }
  const cards = byId("jobs"), there = new Map([...cards.children].map((card) => [card.dataset.job, card]));
  const names = new Set(picture.jobs.map((job) => job.job));
  for (const [name, card] of there) if (!names.has(name)) { card.remove(); card.parts.curves.forget(); viewing.unobserve(card); inView.delete(card); }
  for (const [name, points] of history) if (!names.has(name) && !(points.at(-1)?.[0] >= now - HOUR_S)) history.delete(name);
  for (const job of picture.jobs) {
    let card = there.get(job.job);
    if (!card) { card = newJob(job.job); cards.append(card); }
    const points = history.get(job.job) ?? [];
    if (!(now - (points.at(-1)?.[0] ?? 0) < SELDOM_S)) points.push([now, ...job.rates]);
    while (points.length && points[0][0] < now - HOUR_S) points.shift();
    history.set(job.job, points);
    const isDue = !(now - card.drawn < SELDOM_S);
    if (isDue || inView.has(card)) grid(card.parts, job);
    if (!isDue) continue;
    card.drawn = now;
    showJob(card, job);
    showWaiting(card, job);
    if (inView.has(card)) card.parts.curves.show(points, new Map([...namedBy(job)].map(([rank, one]) => [rank, [SLOW.includes(one.kind) ? "slow" : "bad", one.kind]])));
  }
}

function counters(picture) {
  byId("counted").hidden = !picture.counters.length;
  setText(byId("counters").caption, `Packets by reason${picture.uncounted ? `, without those of ${picture.uncounted}, which answers no more` : ""}${picture.repeated ? `. Of those repeated, ${number(picture.repeated[0])} were asked for again although nothing was lost, and ${number(picture.repeated[1])} results were lost` : ""}`);
  const order = [...picture.counters].sort((one, other) => other.packets - one.packets);
  rows(byId("counters").tBodies[0], order, (one) => ({ bad: false, values: [[one.reason.replaceAll("_", " ")],
    [number(one.packets), "n"], [one.packets_per_s === null ? "–" : number(one.packets_per_s), "n"], [number(one.bytes), "n"]] }));
}

function say(text, isLost) {
  const target = byId("connection");
  target.className = isLost ? "lost" : "";
  setText(target, text);
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
