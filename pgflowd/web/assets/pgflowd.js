// Live updates, clocks, keys, dialogs and selection. Pages work without it.
//
// What templates say to it: `data-fragment` marks what the server sends again; a <time> has data-ago,
// data-since, data-until or data-clock; a button has data-dialog (the id of a <dialog>), data-close or
// data-copy (the text); a checkbox data-select-all; `data-selected` shows how many are selected; a link
// data-load (the id of an element of the page it leads to, which replaces the one with this id here).

const root = new URL("../", import.meta.url).pathname;
const html = document.documentElement;
const here = (id) => document.getElementById(id);
const live = here("live");
const fresh = new Set(); // ids of rows that wait until somebody wants them
const held = new Map(); // fragments that wait, since somebody uses what they replace
let last = ""; // the id of the last change
let line = ""; // the number of the last line of output
let offset = Date.parse(html.dataset.now) - Date.now() || 0; // of the server's clock
let paused = false, pressed = false;

// Fragments --------------------------------------------------------------------------------------

const policy = window.trustedTypes?.createPolicy("pgflowd", { createHTML: (text) => text });

// The only place that parses HTML. Within an SVG it must stand in an <svg>, or it is none.
function parse(text, isSvg) {
  const template = document.createElement("template");
  const whole = isSvg ? `<svg>${text}</svg>` : text;
  template.innerHTML = policy ? policy.createHTML(whole) : whole;
  return isSvg ? template.content.firstChild : template.content;
}

const FIELDS = "input:not([type=checkbox], [type=radio], [type=hidden]), select, textarea";
const STOPS = "a, button, summary, input, select, textarea, [tabindex]";

function isUsed(element) {
  const selection = getSelection();
  const active = document.activeElement;
  return pressed || (element.contains(active) && active.matches(FIELDS)) ||
    (!selection.isCollapsed && selection.containsNode(element, true)) ||
    element.querySelector("dialog[open]") !== null;
}

// What the old one has of its user, the new one gets: focus, open details, checks, scrolling.
function take(old, now) {
  const twin = (each, selector) => (each.id ? now.querySelector(`#${CSS.escape(each.id)}`)
    : now.querySelectorAll(selector)[[...old.querySelectorAll(selector)].indexOf(each)]);
  for (const each of old.querySelectorAll("details")) {
    const same = twin(each, "details");
    if (same) same.open = each.open;
  }
  for (const each of old.querySelectorAll("input[type=checkbox]:checked")) {
    const same = [...now.querySelectorAll("input[type=checkbox]")]
      .find((other) => other.name === each.name && other.value === each.value);
    if (same) same.checked = true;
  }
  const scrolled = [...old.querySelectorAll("[tabindex]")].filter((each) => each.scrollTop || each.scrollLeft)
    .map((each) => [twin(each, "[tabindex]"), each.scrollTop, each.scrollLeft]);
  const focused = old.contains(document.activeElement) && twin(document.activeElement, STOPS);
  return () => {
    for (const [same, top, left] of scrolled) same?.scrollTo(left, top);
    focused?.focus?.({ preventScroll: true });
  };
}

function replace(id, text) {
  const old = here(id);
  if (!old) {
    fresh.add(id);
    return tell();
  }
  if (isUsed(old)) return held.set(id, text);
  held.delete(id);
  const now = parse(text, old instanceof SVGElement && old.ownerSVGElement !== null).firstElementChild;
  tick(now);
  if (now.isEqualNode(old)) return;
  const finish = take(old, now);
  old.replaceWith(now);
  finish();
  count();
}

const retry = () => { for (const [id, text] of [...held]) replace(id, text); };

function change(kind, data) {
  const end = data.indexOf("\n");
  if (kind === "fragment") replace(data.slice(0, end), data.slice(end + 1));
  else if (kind === "removed") here(data)?.classList.add("gone");
  else if (kind === "announce") announce(data);
}

// New rows wait: they come with the whole page, when somebody wants them.
function tell() {
  const button = here("new-rows");
  button.hidden = !fresh.size;
  button.textContent = `↑ ${fresh.size} new`;
}

async function refresh() {
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return;
  const now = parse(await answer.text()).querySelector("#content");
  tick(now);
  const old = here("content");
  const finish = take(old, now);
  old.replaceWith(now);
  finish();
  fresh.clear();
  tell();
  count();
  reconnect(0);
}

let said = 0, next = "";
function announce(text) {
  next = text;
  setTimeout(() => {
    if (!next || Date.now() - said < 5000) return;
    here("announcements").textContent = next;
    said = Date.now();
    next = "";
  }, Math.max(0, said + 5000 - Date.now()));
}

// Streams ----------------------------------------------------------------------------------------

// A browser opens six connections to a server, so only four tabs have a stream; the others poll.
let source = null, release = null, timer = 0, heard = 0, streamAt = 0, turn = 0;

function address(kind) {
  const query = new URLSearchParams(location.search);
  const rows = [...document.querySelectorAll("tbody tr[data-fragment][id]")].slice(0, 200);
  for (const [name, value] of [["after", last], ["lines", line], ["shown", rows.map((row) => row.id).join()]]) {
    if (value) query.set(`live_${name}`, value);
  }
  return `${root}${kind}/${location.pathname.slice(root.length)}?${query}`;
}

function state(name, text) {
  live.dataset.state = name;
  live.textContent = text;
  live.title = paused ? "Go on (p)" : "Pause (p)";
  live.setAttribute("aria-pressed", paused);
}

function disconnect() {
  turn += 1; // what still waits for a lock gives it back
  clearTimeout(timer);
  source?.close();
  release?.();
  source = release = null;
}

function reconnect(after_ms = 1000 + 2000 * Math.random()) {
  disconnect();
  if (!paused && !document.hidden) timer = setTimeout(connect, after_ms);
}

function lock(name) {
  return new Promise((resolve) => {
    navigator.locks.request(name, { ifAvailable: true }, (got) => {
      if (!got) return resolve(null);
      return new Promise((free) => resolve(free));
    }).catch(() => resolve(null));
  });
}

async function connect() {
  const mine = turn;
  let got = null;
  for (let i = 0; navigator.locks && Date.now() >= streamAt && i < 4 && !got; i += 1) got = await lock(`pgflowd-${i}`);
  if (mine !== turn) return got?.();
  release = got;
  if (got) stream();
  else poll(mine);
}

function stream() {
  const own = source = new EventSource(address("live"));
  let opened = false;
  heard = Date.now();
  own.onopen = () => { opened = true; state("live", "live"); };
  own.onerror = () => {
    if (!opened) streamAt = Date.now() + 15000; // no place is free: poll meanwhile
    else state("away", "connecting");
    reconnect(opened ? undefined : 0);
  };
  const on = (kind, does) => own.addEventListener(kind, (event) => {
    heard = Date.now();
    if (event.lastEventId) last = event.lastEventId;
    does(event.data, kind);
  });
  for (const kind of ["fragment", "removed", "announce"]) on(kind, (data) => change(kind, data));
  on("heartbeat", (data) => { offset = Date.parse(data) - Date.now(); });
  on("line", print);
  on("end", (reason) => {
    if (reason === "login") return over();
    state("away", "connecting");
    reconnect();
  });
}

function over() {
  disconnect();
  state("away", "log in again");
}

async function poll(mine) {
  const answer = await fetch(address("fragments")).catch(() => null);
  if (mine !== turn) return;
  if (answer?.status === 401 || answer?.status === 403) return over();
  if (answer?.ok) {
    const { id, now, changes } = await answer.json();
    if (mine !== turn) return;
    state("live", "live, every 5 s");
    offset = Date.parse(now) - Date.now();
    last = id;
    for (const { kind, id: of, text } of changes) change(kind, kind === "fragment" ? `${of}\n${text}` : of || text);
  } else state("away", "connecting");
  timer = setTimeout(connect, 5000);
}

function pause() {
  if (live.textContent === "log in again") return location.reload();
  paused = !paused;
  if (paused) {
    disconnect();
    state("paused", "paused");
  } else reconnect(0);
}

function print(data) {
  const list = here("live-output");
  const end = data.indexOf("\n");
  line = data.slice(0, end);
  if (!list) return;
  const { at, step, task, stream, level, text } = JSON.parse(data.slice(end + 1));
  const isBelow = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  const item = document.createElement("li");
  item.className = level ?? (stream === "stderr" ? "warning" : "info");
  for (const [name, words] of [["at", at?.slice(11, 19)], ["stream", step ? `${step}#${task}` : ""], ["text", text]]) {
    const part = item.appendChild(document.createElement("span"));
    part.className = name;
    part.textContent = words ?? "";
  }
  list.append(item);
  while (list.childElementCount > 5000) list.firstElementChild.remove();
  if (isBelow) list.scrollTop = list.scrollHeight;
}

// Clocks -----------------------------------------------------------------------------------------

const two = (number) => String(number).padStart(2, "0");

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${two(Math.floor((s % 3600) / 60))}m`;
  return `${Math.floor(s / 86400)}d${Math.floor((s % 86400) / 3600)}h`;
}

function local(at) {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

function words(time, at) {
  const since = (Date.now() + offset - at) / 1000;
  if ("ago" in time.dataset) return `${duration(since)} ago`;
  if ("since" in time.dataset) return duration(since);
  if ("until" in time.dataset) return since < 0 ? `in ${duration(-since)}` : "due";
  return "clock" in time.dataset && html.dataset.times ? local(new Date(at)) : time.textContent;
}

function tick(within) {
  for (const time of within.querySelectorAll("[datetime]")) {
    const at = Date.parse(time.getAttribute("datetime"));
    const text = words(time, at);
    if (time.textContent !== text) time.textContent = text;
    if (html.dataset.times && time.title?.endsWith("UTC")) time.title = local(new Date(at));
  }
  for (const bar of within.querySelectorAll("rect[data-start]")) { // of a timeline
    const s = (Date.now() + offset - bar.dataset.start) / 1000;
    bar.setAttribute("width", `${Math.max(s * bar.dataset.scale, 0.3)}%`);
  }
}

// Keys, dialogs, selection -----------------------------------------------------------------------

const pages = new Map(); // by the letter after g
for (const link of document.querySelectorAll("nav.pages a")) {
  const letter = [...link.firstChild.textContent.trim().toLowerCase()].find((each) => !pages.has(each));
  if (letter) pages.set(letter, link);
}

function move(by) {
  const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a[href]"));
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const row = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by];
  row?.querySelector("a[href]").focus();
}

const keys = {
  "/": ["Filter", () => document.querySelector("[role=search] :is(input, select)")?.focus()],
  j: ["Next row; Enter opens it", () => move(1)],
  k: ["Row before", () => move(-1)],
  x: ["Select the row", () => document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click()],
  n: ["Show new rows", () => fresh.size && refresh()],
  p: ["Pause, or go on", pause],
  g: ["Then a letter: another page", () => {}],
  "?": ["These keys", help],
};

function help() {
  const dialog = here("keys");
  const rows = Object.entries(keys).map(([key, [does]]) => [key, does]);
  for (const [letter, link] of pages) rows.push([`g ${letter}`, link.firstChild.textContent.trim()]);
  dialog.querySelector("dl").replaceChildren(...rows.flatMap(([key, does]) => {
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.appendChild(document.createElement("kbd")).textContent = key;
    dd.textContent = does;
    return [dt, dd];
  }));
  dialog.showModal();
}

let before = ""; // the key before this one
function press(event) {
  const field = event.target.closest?.("input:not([type=checkbox]), select, textarea, [contenteditable]");
  if (field || event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const page = before === "g" && pages.get(event.key);
  before = event.key;
  if (page) page.click();
  else if (keys[event.key]) keys[event.key][1]();
  else return;
  event.preventDefault();
}

// How many are selected; the buttons about them work with at least one.
function count() {
  const boxes = [...document.querySelectorAll("main tbody input[type=checkbox]")];
  const many = boxes.filter((box) => box.checked).length;
  for (const each of document.querySelectorAll("[data-selected]")) each.textContent = many;
  for (const each of document.querySelectorAll("[data-select-all]")) {
    each.checked = boxes.length > 0 && many === boxes.length;
    each.indeterminate = many > 0 && many < boxes.length;
  }
}

async function load(link) {
  const answer = await fetch(link.href).catch(() => null);
  const part = answer?.ok && parse(await answer.text()).querySelector(`#${CSS.escape(link.dataset.load)}`);
  if (!part) return location.assign(link.href);
  tick(part);
  here(link.dataset.load)?.replaceWith(part);
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-dialog], [data-close], [data-copy], [data-load]");
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const { dialog, copy } = target.dataset;
  if (dialog) here(dialog)?.showModal();
  else if (copy !== undefined) navigator.clipboard?.writeText(copy).then(() => announce("copied"));
  else if ("load" in target.dataset) load(target);
  else target.closest("dialog")?.close();
  if (!dialog || here(dialog)) event.preventDefault();
});
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-select-all]")) {
    for (const box of document.querySelectorAll("main tbody input[type=checkbox]")) box.checked = event.target.checked;
  }
  count();
});
document.addEventListener("keydown", press);
document.addEventListener("pointerdown", () => { pressed = true; });
for (const kind of ["pointerup", "pointercancel"]) document.addEventListener(kind, () => setTimeout(() => { pressed = false; }));

here("new-rows").addEventListener("click", refresh);
tick(document);
count();
setInterval(() => {
  if (document.hidden) return;
  tick(document);
  retry();
  if (source && Date.now() - heard > 40000) reconnect(0);
}, 1000);
if (html.dataset.now) {
  live.addEventListener("click", pause);
  document.addEventListener("visibilitychange", () => reconnect(0));
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => event.persisted && reconnect(0));
  state("away", "connecting");
  reconnect(0);
}
