// Time series of a job: what it sends, how long a step takes, who waits, what is lost; with a choice of period.
import { draw, make, number } from "./dom.js";
import { colour, onTheme } from "./theme.js";

export const PERIODS = [["1 min", 60], ["10 min", 600], ["1 hour", 3600]];
const HEIGHT = 150, MOST_CURVES = 12, FIRST_RANK = 5;
const QUANTITIES = [ // title, unit, factor, which figure of a point; a step that takes 0 s is not known
  ["Sent", "MB/s", 1e-6, 2], ["A step", "ms", 1e3, 3], ["Waiting, by rank", "%", 100, null], ["Lost frames", "%", 100, 4],
];
const HUES = ["accent", "tree1", "tree2", "tree3"], DASHES = [[], [6, 3], [2, 3]];
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
let period = Number(localStorage.getItem("period")) || PERIODS[0][1];
const all = new Set();

function setPeriod(seconds) {
  period = seconds;
  localStorage.setItem("period", seconds);
  for (const one of all) one.refresh();
}
// `points`: [seconds, collectives/s, bytes/s, step, lost, rank 0 waits, rank 1 waits, ...]
export function charts(job) {
  const buttons = PERIODS.map(([text, seconds]) => {
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", () => setPeriod(seconds));
    return [button, seconds];
  });
  const chooser = make("div", { class: "periods", role: "group", "aria-label": `Period of the curves of job ${job}` }, ...buttons.map(([one]) => one));
  const figures = QUANTITIES.map(([title, unit]) => make("figure", { role: "img", "aria-label": `${title} of job ${job}, ${unit}` },
    make("figcaption", {}, `${title}, ${unit}`)));
  const box = make("div", { class: "charts" }, ...figures);
  let plots = [], points = [], width = 0, ranks = -1;

  function build() {
    for (const one of plots) one.destroy();
    const named = Array.from({ length: ranks }, (_, rank) => `rank ${rank}`);
    plots = QUANTITIES.map(([title, unit, , column], at) => {
      const labels = column === null ? named : ["job"];
      const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") }, font: "11px system-ui" };
      const plot = new uPlot({
        width, height: HEIGHT,
        cursor: { sync: { key: job }, y: false },
        legend: { live: true, markers: { width: 2 } },
        scales: { x: { time: true, range: () => [Date.now() / 1000 - period, Date.now() / 1000] }, y: { range: (_, low, high) => [0, high > 0 ? 1.1 * high : 1] } },
        axes: [{ ...axis, space: 70, values: (_, ticks) => ticks.map((at) => clock.format(1000 * at)) }, { ...axis, size: 48, values: (_, ticks) => ticks.map(number) }],
        series: [{ label: "at", value: (_, at) => (at ? clock.format(1000 * at) : "–") }, ...labels.map((label, place) => ({
          label, stroke: colour(HUES[place % HUES.length]), width: 1.5, dash: DASHES[Math.floor(place / HUES.length) % DASHES.length],
          points: { show: false }, spanGaps: false, value: (_, value) => (value == null ? "–" : `${number(value)} ${unit}`),
        }))],
      }, [[]], figures[at]);
      plot.root.querySelector(".u-legend").setAttribute("role", "presentation");
      plot.ctx.canvas.setAttribute("aria-label", `${title}, ${unit}`);
      return plot;
    });
  }
  function refresh() {
    for (const [button, seconds] of buttons) button.setAttribute("aria-pressed", seconds === period);
    const across = Math.floor((figures[0].clientWidth || 0));
    if (!across || !points.length) return; // not in view
    const curves = Math.min(MOST_CURVES, points.at(-1).length - FIRST_RANK);
    if (across !== width || curves !== ranks) { [width, ranks] = [across, curves]; build(); }
    const from = Date.now() / 1000 - period, shown = points.filter((one) => one[0] >= from), times = shown.map((one) => one[0]);
    plots.forEach((plot, at) => {
      const [, , factor, column] = QUANTITIES[at];
      const columns = column === null ? Array.from({ length: ranks }, (_, rank) => FIRST_RANK + rank) : [column];
      plot.setData([times, ...columns.map((place) => shown.map((one) => (column === 3 && !one[place] ? null : (one[place] ?? null) * factor)))]);
    });
  }
  const made = {
    parts: [chooser, box], refresh,
    show(found) { points = found; refresh(); },
    forget() { all.delete(made); for (const one of plots) one.destroy(); },
  };
  onTheme(() => { ranks = -1; refresh(); });
  all.add(made);
  return made;
}

// Who was late in each of the last steps: a column for each, a line for each rank.
export function strip(target, steps, ranks, bad) {
  const most = Math.max(1, ...steps.map(([, late]) => late)), cell = 4, line = ranks > 16 ? 4 : 9;
  const svg = draw("svg", { viewBox: `0 0 ${200 * cell} ${ranks * line}`, preserveAspectRatio: "none", height: ranks * line, role: "img",
    "aria-label": steps.length ? `The last rank in each of the latest ${steps.length} steps` : "No steps are known yet" });
  svg.append(draw("rect", { class: "ground", width: 200 * cell, height: ranks * line }));
  steps.forEach(([rank, late], at) => {
    const mark = draw("rect", { x: (200 - steps.length + at) * cell, y: rank * line, width: cell - 0.6, height: line - 1, class: rank === bad ? "late" : "last" });
    mark.style.opacity = (0.2 + 0.8 * (late / most)).toFixed(2);
    mark.append(draw("title", {}, `rank ${rank}, ${number(late / 1000)} ms after the first`));
    svg.append(mark);
  });
  target.replaceChildren(svg);
}
