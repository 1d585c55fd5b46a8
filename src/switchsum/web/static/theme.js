// Light and dark: as the system has it, until the reader chooses; the choice is kept.
import { byId } from "./dom.js";

const KINDS = ["system", "light", "dark"], told = new Set();
const isDark = matchMedia("(prefers-color-scheme: dark)");
let kind = localStorage.getItem("theme") ?? KINDS[0], probe = null;

function set(chosen) {
  kind = KINDS.includes(chosen) ? chosen : KINDS[0];
  localStorage.setItem("theme", kind);
  if (kind === KINDS[0]) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = kind;
  byId("theme").textContent = `Colours: ${kind}`;
  for (const one of told) one();
}
export const onTheme = (call) => told.add(call), offTheme = (call) => told.delete(call);
export function colour(name) { // as it is now, for canvases
  probe ??= document.body.appendChild(document.createElement("i"));
  probe.hidden = true;
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}
byId("theme").addEventListener("click", () => set(KINDS[(KINDS.indexOf(kind) + 1) % KINDS.length]));
isDark.addEventListener("change", () => { for (const one of told) one(); });
set(kind);
