// Time series of a job, by rank or as a whole, with a choice of period; and who was late, step by step.
import { clock, draw, make, number, setText, short } from "./dom.js";
import { colour, offTheme, onTheme } from "./theme.js";

const PERIODS = [["1 min", 60], ["10 min", 600], ["1 hour", 3600]], KINDS = [["by rank", "ranks"], ["whole job", "job"]];
// A point: [seconds, collectives/s, bytes/s, step, waiting, lost, density; and of each rank bytes/s, waiting, lost, density]
const HEIGHT = 130, FIRST_RANK = 7, OF_RANK = 4, LEAST_SPAN_S = 15, FEW = 3;
const QUANTITIES = [ // title, unit, factor, figure of a point, figure of a rank
  ["Waiting, last 10 s", "%", 100, 4, 1], ["Sent", "MB/s", 1e-6, 2, 0], ["A step takes", "ms", 1e3, 3, null],
  ["Lost frames", "%", 100, 5, 2], ["Density of sparse sums", "%", 100, 6, 3],
];
const isAbout = (title, kind) => ({ link: /^Lost/, late: /^Waiting/ })[kind]?.test(title) ?? true; // what is fine has no colour
const all = new Set();
let period = Number(localStorage.getItem("period")) || PERIODS[0][1], kind = localStorage.getItem("curves") ?? KINDS[0][1];

function chooser(label, choices, current, choose) {
  const buttons = choices.map(([text, value]) => {
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", () => { choose(value); for (const one of all) one.refresh(); });
    return [button, value];
  });
  const show = () => buttons.forEach(([button, value]) => button.setAttribute("aria-pressed", value === current()));
  return { part: make("div", { class: "periods", role: "group", "aria-label": label }, ...buttons.map(([one]) => one)), show };
}
export function charts(job) {
  const periods = chooser(`Period of the curves of job ${job}`, PERIODS, () => period, (value) => { period = value; localStorage.setItem("period", value); });
  const kinds = chooser(`Curves of job ${job}`, KINDS, () => kind, (value) => { kind = value; localStorage.setItem("curves", value); });
  const figures = QUANTITIES.map(([title, unit]) => {
    const reading = make("span"), figure = make("figure", { role: "img", "aria-label": `${title} of job ${job}, ${unit}` },
      make("figcaption", {}, make("b", {}, title), " ", reading));
    return { figure, reading, plot: null, built: "" };
  });
  const none = make("p", { class: "hint" }), box = make("div", { class: "charts" }, ...figures.map((one) => one.figure));
  let points = [], ranks = [], named = new Map(), focused = null; // rank -> its colour, and the kind of the sentence that names it

  function build(at, across) {
    const [title, unit, , , ofRank] = QUANTITIES[at], curves = kind === "job" || ofRank === null ? [null] : ranks;
    const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") }, font: "11px system-ui" };
    const looks = curves.map((rank) => (rank === null ? ["accent", 1.5] : named.has(rank) ? [isAbout(title, named.get(rank)[1]) ? named.get(rank)[0] : "soft", 2] : ["soft", 1]));
    figures[at].plot?.destroy();
    const plot = new uPlot({
      width: across, height: HEIGHT,
      cursor: { sync: { key: job }, y: false, focus: { prox: 12 } }, focus: { alpha: 1 }, legend: { show: false },
      scales: { x: { time: true, range: () => span() }, y: { range: (_, low, high) => [0, high > 0 ? 1.1 * high : 1] } },
      axes: [{ ...axis, space: 70, size: 28, values: (_, ticks) => ticks.map((tick) => clock(1000 * tick)) }, { ...axis, size: 46, space: 32, values: (_, ticks) => ticks.map(short) }],
      series: [{}, ...looks.map(([name, width]) => ({ stroke: colour(name), width, points: { show: (of) => of.data[0].length < FEW, size: 4 }, spanGaps: false }))],
      hooks: { setCursor: [() => read(at)], setSeries: [(_, place) => { focused = place === null ? null : [at, place]; read(at); }] },
    }, [[]], figures[at].figure);
    plot.ctx.canvas.setAttribute("aria-label", `${title}, ${unit}`);
    figures[at].plot = plot;
  }
  function span() { // from the first point on, where less than the period is known
    const now = Date.now() / 1000, first = points[0]?.[0] ?? now;
    return [Math.max(now - period, Math.min(first, now - LEAST_SPAN_S)), now];
  }
  function read(at) { // what stands above the curves: the values under the pointer, or else the newest ones
    const { plot, reading } = figures[at], [, unit, , , ofRank] = QUANTITIES[at], place = plot.cursor.idx ?? plot.data[0].length - 1;
    const value = (column) => plot.data[column]?.[place], text = (number_) => (number_ == null ? "–" : `${short(number_)}\u00a0${unit}`);
    const when = plot.cursor.idx == null ? "" : `, ${clock(1000 * plot.data[0][place])}`;
    if (kind === "job" || ofRank === null) { setText(reading, `${text(value(1))}${when}`); return; }
    if (plot.cursor.idx != null && focused?.[0] === at) { setText(reading, `rank ${ranks[focused[1] - 1]}: ${text(value(focused[1]))}${when}`); return; }
    const of = (isNamed) => ranks.map((rank, column) => [rank, value(column + 1)]).filter(([rank, one]) => one != null && named.has(rank) === isNamed);
    const range = (values) => [...new Set([Math.min, Math.max].map((end) => short(end(...values.map(([, one]) => one)))))].join(" to "), own = of(true), others = of(false);
    const said = own.length < FEW ? own.map(([rank, one]) => `rank ${rank}: ${text(one)}`) : [`${own.length} marked ranks: ${range(own)}\u00a0${unit}`];
    if (others.length) said.push(`${own.length ? "others" : "ranks"} ${range(others)}\u00a0${unit}`);
    setText(reading, `${said.join(", ") || "–"}${when}`);
  }
  function refresh() {
    periods.show(), kinds.show();
    if (!box.clientWidth || !points.length) return; // not in view
    const count = Math.floor((points.at(-1).length - FIRST_RANK) / OF_RANK), of = Array.from({ length: count }, (_, rank) => rank);
    ranks = [...of.filter((rank) => !named.has(rank)), ...of.filter((rank) => named.has(rank))]; // those that are named on top
    const from = Date.now() / 1000 - period, shown = points.filter((one) => one[0] >= from), times = shown.map((one) => one[0]);
    const key = JSON.stringify([kind, ranks, [...named]]), empty = [];
    const data = figures.map((one, at) => {
      const [title, , factor, ofJob, ofRank] = QUANTITIES[at];
      const columns = kind === "job" || ofRank === null ? [ofJob] : ranks.map((rank) => FIRST_RANK + OF_RANK * rank + ofRank);
      const found = columns.map((place) => shown.map((point) => (point[place] == null ? null : point[place] * factor)));
      one.figure.hidden = found.every((column) => column.filter(Boolean).length < 2); // a line has two ends
      if (one.figure.hidden) empty.push(title.toLowerCase());
      return found;
    });
    figures.forEach((one, at) => {
      if (one.figure.hidden) return;
      const wide = Math.floor(one.figure.clientWidth), built = `${wide} ${key}`; // the more there are, the narrower
      if (one.built !== built) { build(at, wide); one.built = built; } // also one that was hidden while the others were built
      one.plot.setData([times, ...data[at]]);
      read(at);
    });
    none.hidden = !empty.length;
    setText(none, `Nothing to draw in this time: ${empty.join(", ")}.`);
  }
  const repaint = () => { for (const one of figures) one.built = ""; refresh(); };
  const made = {
    parts: [make("div", { class: "choices" }, periods.part, kinds.part), box, none], refresh,
    show(found, who) { [points, named] = [found, who]; refresh(); },
    forget() { all.delete(made); offTheme(repaint); removeEventListener("resize", refresh); for (const { plot } of figures) plot?.destroy(); },
  };
  onTheme(repaint);
  addEventListener("resize", refresh);
  all.add(made);
  return made;
}

// Who was the last to begin in each of the last steps: a column for each, a line for each rank.
const CELL = 4, FEW_STEPS = 40, MANY = 16;
export function strip(target, steps, ranks, bad) {
  const most = Math.max(1, ...steps.map(([, late]) => late)), line = ranks > MANY ? 4 : 12, every = ranks > MANY ? 8 : 1;
  const columns = Math.max(FEW_STEPS, steps.length), high = ranks * line;
  const svg = draw("svg", { viewBox: `0 0 ${columns * CELL} ${high}`, preserveAspectRatio: "none", role: "img",
    "aria-label": steps.length ? `The last rank in each of the latest ${steps.length} steps` : "No steps are known yet" });
  svg.style.height = `${high}px`;
  svg.append(draw("rect", { class: "ground", width: columns * CELL, height: high }));
  steps.forEach(([rank, late], at) => {
    const cell = draw("rect", { x: (columns - steps.length + at) * CELL, y: rank * line, width: CELL - 0.6, height: line - 1, class: rank === bad ? "late" : "last" });
    cell.style.opacity = (0.2 + 0.8 * (late / most)).toFixed(2);
    cell.append(draw("title", {}, `rank ${rank}, ${number(late / 1000)} ms after the first`));
    svg.append(cell);
  });
  const names = Array.from({ length: ranks }, (_, rank) => rank).filter((rank) => rank % every === 0 || rank === bad).map((rank) => {
    const name = make("span", { class: rank === bad ? "late" : "" }, `rank ${rank}`);
    name.style.top = `${rank * line + line / 2}px`;
    return name;
  });
  const labels = make("div", { class: "names", "aria-hidden": "true" }, ...names);
  labels.style.height = `${high}px`;
  const ends = make("div", { class: "ends", "aria-hidden": "true" }, make("span", {}, `${number(steps.length)} steps ago`), make("span", {}, `strongest colour: ${number(most / 1000)} ms late`), make("span", {}, "latest"));
  target.hidden = !steps.length;
  target.replaceChildren(labels, svg, ends);
}
