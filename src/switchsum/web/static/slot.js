// Packets of a slot, decoded: asked for while its panel is open, which a click on the slot opens.
import { make, setText } from "./dom.js";

const MOST = 64;
const seconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });

export function slotPackets(job) {
  const input = make("input", { type: "number", min: 0, step: 1, size: 6, "aria-label": `Slot of job ${job}` });
  const show = make("button", { type: "submit" }, "Show its packets"), stop = make("button", { type: "button" }, "Stop");
  const form = make("form", { class: "slot" }, make("label", {}, "Slot ", input), " ", show, " ", stop);
  const said = make("p", { class: "hint", role: "status" }), lines = make("ol", { class: "packets", tabindex: "0", "aria-label": `Packets of a slot of job ${job}` });
  let slot = null, seen = []; // a new object for each time that a slot is opened, so that earlier looks at it end
  stop.hidden = lines.hidden = true;

  async function look(asked) {
    let again = 1;
    try {
      const answer = await fetch(`packets?job=${encodeURIComponent(job)}&slot=${asked.number}`);
      if (slot !== asked) return;
      if (!answer.ok) { setText(said, (await answer.text()).trim()); slot = null; stop.hidden = true; return; }
      const { packets, again_s } = await answer.json();
      again = again_s;
      seen = [...seen, ...packets].slice(-MOST);
      setText(said, seen.length ? `Packets of slot ${asked.number}, as they pass; looking again.` : `No packet of slot ${asked.number} has passed yet; looking again.`);
      lines.hidden = !seen.length;
      lines.replaceChildren(...seen.map(row));
    } catch { if (slot === asked) setText(said, "No answer; looking again."); }
    setTimeout(() => slot === asked && form.isConnected && look(asked), 1000 * again);
  }
  function open(number) {
    [slot, seen] = [{ number }, []];
    input.value = number;
    lines.replaceChildren();
    stop.hidden = false;
    setText(said, `Waiting for packets of slot ${number}…`);
    look(slot);
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); if (input.value) open(Number(input.value)); });
  stop.addEventListener("click", () => { slot = null; stop.hidden = true; setText(said, ""); });
  return { open, suggest: (number) => { if (!input.value) input.value = number; }, parts: [form, said, lines] };
}
function row({ at, switch: name, port, sent, text, bytes }) {
  const where = `${name ? `${name} ` : ""}port ${port} ${sent ? "out" : "in"}`;
  return make("li", {}, `${seconds.format(at * 1000)} ${where}, ${bytes} B: ${text}`);
}
