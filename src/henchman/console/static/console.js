// The console in the browser: live pages, keys, times in the zone of the reader. Without it every page works by links
// and forms. The only place that turns text into elements is the policy "console", for answers of this site.
const body = document.body;
const policy = window.trustedTypes?.createPolicy("console", { createHTML: (text) => text });
const kept = {
  get: (name) => { try { return localStorage.getItem(`henchman-${name}`); } catch { return null; } },
  set: (name, value) => { try { localStorage.setItem(`henchman-${name}`, value); } catch { /* a private window */ } },
};

// ---- times

const ZONES = ["relative", "local", "utc"];
let zone = ZONES.includes(kept.get("zone")) ? kept.get("zone") : "relative";

function span(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return seconds < 10 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds)} s`;
  for (const [size, unit, less, below] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (seconds >= size) {
      const rest = Math.floor((seconds % size) / less);
      return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${below}` : ""}`;
    }
  }
}

function timeText(at, now) {
  const moment = new Date(at * 1000);
  if (Number.isNaN(moment.getTime())) return null;
  if (zone === "utc") return `${moment.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  if (zone === "local") return moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const away = at - now;
  return Math.abs(away) < 1 ? "now" : away > 0 ? `in ${span(away)}` : `${span(-away)} ago`;
}

function drawTimes(root = document) {
  const clock = root.querySelector("footer time") ?? document.querySelector("footer time");
  const now = Number(clock?.dataset.at ?? Date.now() / 1000);
  for (const one of root.querySelectorAll("main td time, main dd time")) {
    const text = timeText(Number(one.dataset.at), now);
    if (text !== null && one.textContent !== text) one.textContent = text;
  }
}

// ---- live: the page is asked for again, and what changed is merged, never under the hand

const EVERY = 3000;
const LONGEST = 30000;
const state = document.getElementById("live");
let live = kept.get("live") !== "off";
let wait = EVERY;
let timer = 0;
let heard = Date.now();

function say(text) {
  if (state && state.textContent !== text) state.textContent = text;
}

function held() {
  const active = document.activeElement;
  const inside = active && active.closest("main") && active.id !== "main" && active.matches("input, select, textarea, summary");
  return inside || document.querySelector("dialog[open]") || String(document.getSelection()) !== "" || pressed;
}

let pressed = false;
addEventListener("pointerdown", () => { pressed = true; });
addEventListener("pointerup", () => { pressed = false; });

async function look() {
  const main = document.getElementById("main");
  if (!live || document.hidden || !main || !state) return;
  if (held()) { say("● live · held"); return; }
  const fresh = await asked();
  if (!fresh) return;
  const said = main.querySelector(".said");
  if (said) fresh.prepend(said.cloneNode(true));
  drawTimes(fresh);
  Idiomorph.morph(main, fresh.childNodes, { morphStyle: "innerHTML", ignoreActiveValue: true, callbacks: {
    beforeAttributeUpdated: (name, node) => !(name === "open" && node.matches("details")) && !(name === "class" && node.matches("tr.on")),
  } });
  heard = Date.now();
  wait = EVERY;
  say("● live");
}

// what this page is now; null: nothing new can be shown, and it was said why
async function asked() {
  try {
    const here = new URL(location.href);
    here.searchParams.delete("said");
    here.searchParams.delete("seal");
    const answer = await fetch(here, { headers: { Accept: "text/html" }, redirect: "error", signal: AbortSignal.timeout(10000) });
    const text = await answer.text();
    const parsed = new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
    const fresh = parsed.getElementById("main");
    if (answer.status >= 500 || !fresh || held()) throw new Error("no page");
    document.title = parsed.title;
    if (parsed.body.dataset.build !== body.dataset.build) { say("! a newer console: load again"); live = false; return null; }
    return fresh;
  } catch {
    wait = Math.min(wait * 2, LONGEST);
    say(`! stale ${span((Date.now() - heard) / 1000)}`);
    return null;
  }
}

async function turn() {
  clearTimeout(timer);
  try { await look(); } finally { timer = setTimeout(turn, wait); }
}

function setLive(on) {
  live = on;
  kept.set("live", on ? "on" : "off");
  say(on ? "● live" : "‖ not live");
  if (on) turn();
}

// ---- copying

// where there is no clipboard, on plain HTTP, a field that is selected for a moment does the same
async function copy(text) {
  if (navigator.clipboard) {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed: the other way */ }
  }
  const active = document.activeElement;
  const field = document.createElement("textarea");
  field.className = "hidden";
  field.value = text;
  body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  active?.focus();
  return done;
}

async function copyPart(button) {
  const done = await copy(document.getElementById(button.dataset.copies).textContent.trim());
  button.textContent = done ? "Copied" : "Not copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

// the id of the job of this page, or of the row under the cursor: the end of its link, where ~2F stands for the byte 2F
async function copyJid() {
  const link = document.querySelector("tr.on a[href*='/jobs/']")?.getAttribute("href");
  const jid = link ? decodeURIComponent(link.split("?")[0].split("/").pop().replaceAll("~", "%")) : document.getElementById("jid")?.textContent;
  if (jid) say(await copy(jid) ? "✓ copied the id" : "! not copied");
}

// ---- keys

const rows = () => [...document.querySelectorAll("table.rows tbody tr")];

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((one) => one.classList.contains("on"));
  all[at]?.classList.remove("on");
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  next.classList.add("on");
  next.scrollIntoView({ block: "nearest" });
}

function turnZone() {
  zone = ZONES[(ZONES.indexOf(zone) + 1) % ZONES.length];
  kept.set("zone", zone);
  nameZone();
  drawTimes();
}

function nameZone() {
  const button = document.getElementById("zone");
  if (button) button.textContent = `times: ${{ relative: "ago", local: "local", utc: "UTC" }[zone]}`;
}

function turnTheme() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  const next = dark ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  document.cookie = `henchman_theme=${next}; path=${body.dataset.prefix}/; max-age=31536000; samesite=lax`;
}

const follow = (selector) => document.querySelector(selector)?.click();
const KEYS = {
  "?": () => document.getElementById("sheet").showModal(),
  "/": () => document.getElementById("find")?.focus(),
  j: () => step(1),
  k: () => step(-1),
  Enter: () => follow("tr.on a[href]"),
  o: () => follow("tr.on a[href]"),
  "[": () => follow("a[rel=prev]"),
  "]": () => follow("a[rel=next]"),
  ".": () => setLive(!live),
  y: copyJid,
  z: turnZone,
  t: turnTheme,
};
let going = 0;

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.matches("input, select, textarea")) { if (event.key === "Escape") event.target.blur(); return; }
  if (document.querySelector("dialog[open]")) return;
  if (Date.now() - going < 1500) {
    going = 0;
    const link = document.querySelector(`a[data-go="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); return; }
  }
  if (event.key === "g") { going = Date.now(); return; }
  if (event.key === "Enter" && event.target !== body && event.target.id !== "main") return;
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});

// ---- the beginning

body.dataset.script = "";
addEventListener("click", (event) => {
  const button = event.target.closest("[data-copies]");
  if (button) copyPart(button);
});

for (const [id, act] of [["zone", turnZone], ["theme", turnTheme], ["keys", KEYS["?"]]]) {
  const button = document.getElementById(id);
  if (button) { button.hidden = false; button.addEventListener("click", act); }
}
nameZone();
drawTimes();
if (state) {
  state.hidden = false;
  say(live ? "● live" : "‖ not live");
  state.addEventListener("click", () => setLive(!live));
  document.addEventListener("visibilitychange", () => { if (!document.hidden) turn(); });
  timer = setTimeout(turn, EVERY);
}
