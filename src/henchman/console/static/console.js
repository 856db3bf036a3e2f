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
// An address may name the zone of its times, as `tz`, for that page alone; a zone chosen in this browser holds elsewhere.
let zone = [new URLSearchParams(location.search).get("tz"), kept.get("zone")].find((one) => ZONES.includes(one)) ?? "relative";

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
const STAYS = 5000; // milliseconds for which a row that has left stays where it was, dimmed
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
  if (main.querySelector("[data-still]")) { say("‖ not live here"); return; }
  if (held()) { say("● live · held"); return; }
  const fresh = await asked();
  if (!fresh) return;
  nameRows(main);
  nameRows(fresh);
  const held_back = holdNews(main, fresh);
  keepPlaces(main, fresh);
  const said = main.querySelector(".said");
  if (said) fresh.prepend(said.cloneNode(true));
  drawTimes(fresh);
  Idiomorph.morph(main, fresh.childNodes, { morphStyle: "innerHTML", ignoreActiveValue: true, callbacks: {
    beforeAttributeUpdated: (name, node) => !(name === "open" && node.matches("details")) && !(name === "class" && node.matches("tr.on, tr.chosen")),
  } });
  heard = Date.now();
  wait = EVERY;
  say("● live");
  lost("");
  countChosen();
  tellNews(held_back);
}

// a row is the same one as long as it leads to the same thing: focus, cursor and choice stay with it
function nameRows(root) {
  const used = new Set();
  for (const row of root.querySelectorAll("table.rows tbody tr")) {
    const path = row.querySelector("a[href]")?.getAttribute("href").split("?")[0];
    if (!row.id && path && !used.has(path)) row.id = `row-${path}`;
    used.add(path);
  }
}

// while somebody reads a list, what comes does not push what stands there: rows keep their order, those that came
// between them wait until they are asked for, or until nobody reads
let released = false;

function holdNews(main, fresh) {
  const tables = [...fresh.querySelectorAll("table.rows tbody")];
  let many = 0;
  for (const [place, old] of [...main.querySelectorAll("table.rows tbody")].entries()) {
    const into = tables[place];
    const reads = old.matches(":hover") || scrollY > 80 || old.querySelector("tr.on, tr.chosen");
    if (!into || released || !reads) continue;
    const order = new Map([...old.rows].filter((row) => row.id).map((row, at) => [row.id, at]));
    const last = [...into.rows].findLastIndex((row) => order.has(row.id));
    const news = [...into.rows].slice(0, last + 1).filter((row) => row.id && !order.has(row.id));
    for (const row of news) row.remove();
    many += news.length;
    const pushed = pushedOff(old, into, news.length);
    const placed = (row) => order.get(row.id) ?? Infinity;
    into.append(...[...into.rows, ...pushed.map((row) => row.cloneNode(true))].sort((one, other) => (placed(one) < placed(other) ? -1 : placed(one) > placed(other) ? 1 : 0)));
  }
  return many;
}

// the rows at the end of a list that are on its next page now, because so many came
function pushedOff(old, into, many) {
  const stay = new Set([...into.rows].map((row) => row.id));
  const end = [...old.rows].slice([...old.rows].findLastIndex((row) => stay.has(row.id)) + 1);
  return end.filter((row) => row.id && !row.classList.contains("left")).slice(0, many);
}

function tellNews(many) {
  const bar = document.getElementById("news");
  if (!bar) return;
  bar.hidden = !many;
  const text = `${many} new · show`;
  if (many && bar.firstElementChild.textContent !== text) bar.firstElementChild.textContent = text;
}

async function showNews() {
  released = true;
  try { await turn(); } finally { released = false; }
}

// a row that has left stays where it was for a moment, dimmed: what stands below it does not jump. Not where most rows
// left at once, for then nothing is where it was
function keepPlaces(main, fresh) {
  const tables = [...fresh.querySelectorAll("table.rows tbody")];
  for (const [place, old] of [...main.querySelectorAll("table.rows tbody")].entries()) {
    const into = tables[place];
    const left = [...old.rows].filter((row) => row.id && into && !fresh.querySelector(`[id="${CSS.escape(row.id)}"]`));
    if (!into || left.length > Math.max(3, old.rows.length / 2)) continue;
    const known = new Set([...old.rows].map((row) => row.id));
    const pushed = pushedOff(old, into, [...into.rows].filter((row) => row.id && !known.has(row.id)).length);
    for (const row of left) {
      if (pushed.includes(row)) continue;
      const since = Number(row.dataset.left ?? Date.now());
      if (Date.now() - since > STAYS) continue;
      row.classList.remove("on", "chosen"); // or merging would keep these, and not dim it
      const stays = row.cloneNode(true);
      stays.dataset.left = since;
      stays.classList.add("left");
      stays.title = "not here any more";
      for (const act of stays.querySelectorAll("form, .acts .button")) act.remove();
      const before = row.previousElementSibling?.id;
      const after = before && [...into.rows].find((one) => one.id === before);
      if (after) after.after(stays); else into.prepend(stays);
    }
  }
}

// the console does not answer: it is said above what was seen last, until it is back
function lost(text) {
  const line = document.getElementById("lost");
  if (!line) return;
  line.hidden = !text;
  if (line.textContent !== text) line.textContent = text;
  document.getElementById("main").classList.toggle("stale", Boolean(text));
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
    if (held() && fresh) return null;
    if (answer.status >= 500 || !fresh) throw new Error("no page");
    document.title = parsed.title;
    if (parsed.body.dataset.build !== body.dataset.build) { say("! a newer console: load again"); live = false; return null; }
    return fresh;
  } catch {
    wait = Math.min(wait * 2, LONGEST);
    say(`! stale ${span((Date.now() - heard) / 1000)}`);
    lost(`The console does not answer. What stands here is of ${new Date(heard).toLocaleTimeString()}; it is asked again every few seconds.`);
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

// the id of the job of this page, or of the row under the cursor: the end of its link, where ~2F stands for the byte 2F;
// where there is none, the address
async function copyJid() {
  const link = document.querySelector("tr.on a[href*='/jobs/']")?.getAttribute("href");
  const jid = link ? decodeURIComponent(link.split("?")[0].split("/").pop().replaceAll("~", "%")) : document.getElementById("jid")?.textContent;
  const done = await copy(jid ?? addressOfView());
  say(done ? `✓ copied the ${jid ? "id" : "address"}` : "! not copied");
}

// this page as it is: with its filters, and the zone of its times; not what became of an act
function addressOfView() {
  const view = new URL(location.href);
  for (const name of ["said", "seal", "tz"]) view.searchParams.delete(name);
  if (zone !== "relative") view.searchParams.set("tz", zone);
  return view.href;
}

// ---- keys

const rows = () => [...document.querySelectorAll("table.rows tbody tr:not(.left)")];

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((one) => one.classList.contains("on"));
  all[at]?.classList.remove("on");
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  next.classList.add("on");
  next.scrollIntoView({ block: "nearest" });
}

// ---- rows that are chosen, and what is done to them all

const chosen = () => rows().filter((one) => one.classList.contains("chosen"));
const ACTS = { R: ["retry", "run"], K: ["kill"], D: ["delete"], E: ["retry", "run"], P: ["pause"], U: ["resume"], C: ["cancel"], Q: ["quiet"], S: ["stop"] };
let last = null;

function choose(range) {
  const on = document.querySelector("table.rows tr.on") ?? (step(0), document.querySelector("table.rows tr.on"));
  if (!on || on.classList.contains("left")) return;
  const all = rows();
  const [from, to] = [all.indexOf(range && last ? last : on), all.indexOf(on)].sort((one, other) => one - other);
  const to_be = range ? true : !on.classList.contains("chosen");
  for (const one of all.slice(Math.max(from, 0), to + 1)) one.classList.toggle("chosen", to_be);
  last = on;
  countChosen();
}

function chooseAll() {
  const all = rows();
  const to_be = chosen().length < all.length;
  for (const one of all) one.classList.toggle("chosen", to_be);
  countChosen();
}

// how many are chosen, and what can be done to each of them
function countChosen() {
  const bar = document.getElementById("chosen");
  if (!bar) return;
  const some = chosen();
  bar.hidden = !some.length;
  if (!some.length) return;
  const can = Object.entries(ACTS).map(([key, verbs]) => [key, some.map((row) => addressOf(row, verbs))[0]]).filter(([key, way]) => way && key !== "E");
  bar.firstElementChild.textContent = `${some.length} chosen`;
  bar.lastElementChild.textContent = can.length ? can.map(([key, way]) => `${key} ${way.title}`).join(" · ") : "nothing can be done to them from here";
}

// where a row's act goes, and what stands on its button
function addressOf(row, verbs) {
  for (const verb of verbs) {
    const form = row.querySelector(`form[action$="/do/${verb}"]`);
    if (form) return { to: form.getAttribute("action"), title: form.querySelector("button").textContent.trim() };
    const link = row.querySelector(`a[href$="/do/${verb}"]`);
    if (link) return { to: link.getAttribute("href"), title: link.textContent.trim().replace("…", "") };
  }
  return null;
}

function actOn(key) {
  const some = chosen();
  const on = some.length ? some : [...document.querySelectorAll("table.rows tr.on")];
  const ways = on.map((row) => ({ row, way: addressOf(row, ACTS[key]) })).filter(({ way }) => way);
  const dialog = document.getElementById("sure");
  if (!dialog || !ways.length) { if (dialog && on.length) say("this is not done here"); return; }
  const [first] = ways;
  dialog.querySelector("h2").textContent = ways.length > 1 ? `${first.way.title}: ${ways.length} rows` : first.way.title;
  const names = ways.slice(0, 5).map(({ row }) => row.cells[0].textContent.trim().replace(/\s+/g, " ").slice(0, 120));
  dialog.querySelector("ul").replaceChildren(...names.map((name) => Object.assign(document.createElement("li"), { textContent: name })));
  dialog.querySelector("p").textContent = ways.length > 5 ? `and ${ways.length - 5} more` : "";
  dialog.onclose = () => { if (dialog.returnValue === "yes") doAll(ways); };
  dialog.returnValue = "";
  dialog.showModal();
}

// one after the other, as if each button had been pressed: the server checks and writes down each
async function doAll(ways) {
  let done = 0;
  let why = "";
  for (const { way } of ways) {
    say(`${done} of ${ways.length} …`);
    try {
      const token = document.querySelector("main input[name=token]")?.value ?? body.dataset.token;
      const sent = { method: "POST", body: new URLSearchParams({ token }), redirect: "manual", signal: AbortSignal.timeout(30000) };
      const answer = await fetch(way.to, sent);
      if (answer.type === "opaqueredirect") { done += 1; continue; }
      const text = await answer.text();
      const parsed = new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
      why = parsed.querySelector("main p")?.textContent.trim() ?? `${answer.status}`;
    } catch { why = "the console did not answer"; }
  }
  for (const one of chosen()) one.classList.remove("chosen");
  countChosen();
  const line = Object.assign(document.createElement("p"), { className: "said", textContent: `${ways[0].way.title}: ${done} of ${ways.length} done${why ? `; ${why}` : ""}` });
  line.setAttribute("role", "status");
  document.querySelector("#main .said")?.remove();
  document.getElementById("main").prepend(line);
  turn();
}

// ---- the palette: pages, what stands on this one, what can be done; whatever else is written is looked for

let offered = [];
let views = null; // saved ones: asked for when the palette is first opened

async function askViews() {
  if (views) return;
  views = [];
  try {
    const answer = await fetch(`${body.dataset.prefix}/api/v1/views`, { signal: AbortSignal.timeout(10000) });
    const found = answer.ok ? (await answer.json()).items : [];
    views = found.map((one) => ["view", `${one.page}: ${one.name}`, () => { location.href = `${body.dataset.prefix}/${one.page}?${new URLSearchParams(one.query)}`; }]);
  } catch { views = null; return; }
  const dialog = document.getElementById("palette");
  if (dialog.open) offer(dialog.querySelector("input").value);
}

function commands() {
  const links = (selector, kind) => [...document.querySelectorAll(selector)].map((one) => [kind, one.textContent.trim().replace(/\s+/g, " "), () => one.click()]);
  const own = [["key", "Live on or off", () => setLive(!live)], ["key", "Times: your zone, UTC, relative", turnZone], ["key", "Light or dark", turnTheme], ["key", "All keys", KEYS["?"]],
    ["key", `Single keys ${kept.get("keys") === "off" ? "on" : "off"}`, () => kept.set("keys", kept.get("keys") === "off" ? "on" : "off")]];
  return [...links("nav.side a", "page"), ...links("#main .title .acts .button, #main .title .acts form button", "act"), ...links("#main td:first-child a[href]", "here"), ...views ?? [], ...own].filter(([, text]) => text);
}

function palette() {
  const dialog = document.getElementById("palette");
  if (!dialog || dialog.open) return;
  dialog.querySelector("input").value = "";
  offer("");
  dialog.showModal();
  askViews();
}

function offer(text) {
  const list = document.querySelector("#palette ul");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  offered = commands().filter(([kind, name]) => words.every((word) => `${kind} ${name}`.toLowerCase().includes(word))).slice(0, 12);
  const find = document.getElementById("find");
  if (text.trim() && find) offered.push(["search", text.trim(), () => { find.value = text.trim(); find.form.requestSubmit(); }]);
  list.replaceChildren(...offered.map(([kind, name], place) => {
    const one = document.createElement("li");
    one.id = `offer-${place}`;
    one.setAttribute("role", "option");
    one.append(Object.assign(document.createElement("small"), { textContent: kind }), name.slice(0, 160));
    one.addEventListener("click", () => take(place));
    return one;
  }));
  mark(0);
}

function mark(place) {
  const all = [...document.querySelectorAll("#palette li")];
  const at = all.length ? (place + all.length) % all.length : -1;
  all.forEach((one, index) => one.setAttribute("aria-selected", String(index === at)));
  all[at]?.scrollIntoView({ block: "nearest" });
  const input = document.querySelector("#palette input");
  if (at >= 0) input.setAttribute("aria-activedescendant", `offer-${at}`); else input.removeAttribute("aria-activedescendant");
}

function take(place) {
  document.getElementById("palette").close();
  offered[place]?.[2]();
}

function inPalette(event) {
  const at = [...document.querySelectorAll("#palette li")].findIndex((one) => one.getAttribute("aria-selected") === "true");
  const act = { ArrowDown: () => mark(at + 1), ArrowUp: () => mark(at - 1), Enter: () => take(at) }[event.key];
  if (act) { event.preventDefault(); act(); }
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
  n: showNews,
  x: () => choose(false),
  X: () => choose(true),
  a: chooseAll,
  Escape: () => { for (const one of document.querySelectorAll("tr.chosen, tr.on")) one.classList.remove("chosen", "on"); countChosen(); },
  z: turnZone,
  t: turnTheme,
};
for (const key of Object.keys(ACTS)) KEYS[key] = () => actOn(key);
let going = 0;

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") { event.preventDefault(); palette(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.matches("input, select, textarea") && !event.target.closest("dialog:not([open])")) { if (event.key === "Escape") event.target.blur(); return; }
  if (document.querySelector("dialog[open]") || kept.get("keys") === "off") return;
  if (Date.now() - going < 1500) {
    going = 0;
    const link = document.querySelector(`a[data-go="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); return; }
  }
  if (event.key === "g") { going = Date.now(); return; }
  if (event.key === "Enter" && event.target !== body && event.target.id !== "main" && !event.target.closest("dialog")) return;
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});

/** Offers the known terms behind what stands in a search already. */
function complete(input) {
  const before = input.value.slice(0, input.value.lastIndexOf(" ") + 1);
  for (const one of input.list.options) one.value = before + (one.dataset.term ??= one.value);
}

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
document.querySelector("#news button")?.addEventListener("click", showNews);
nameZone();
drawTimes();
document.addEventListener("input", event => { if (event.target.list?.id === "terms") complete(event.target); });
const field = document.querySelector("#palette input");
field?.addEventListener("input", () => offer(field.value));
field?.addEventListener("keydown", inPalette);
addEventListener("online", () => { wait = EVERY; turn(); });
addEventListener("offline", () => { wait = EVERY; turn(); });
if (state) {
  state.hidden = false;
  say(live ? "● live" : "‖ not live");
  state.addEventListener("click", () => setLive(!live));
  document.addEventListener("visibilitychange", () => { if (!document.hidden) turn(); });
  timer = setTimeout(turn, EVERY);
}
