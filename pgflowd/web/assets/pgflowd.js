// Live updates, clocks, keys, dialogs and selection. Pages work without it.
//
// What templates say to it: `data-fragment` marks what the server sends again; a <time> has data-ago,
// data-since, data-until or data-clock; a growing bar data-start and data-scale; a button data-close (its
// dialog) or data-copy (a text); a checkbox data-select-all; `data-selected` shows how many are selected; a
// link data-load: the value on the page to which it leads replaces it.
const root = new URL("../", import.meta.url).pathname;
const html = document.documentElement;
const here = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const policy = window.trustedTypes?.createPolicy("pgflowd", { createHTML: (text) => text });

// The only place that parses HTML. A part of an SVG must stand in an <svg>, or it is no part of one.
function parse(text, isSvg) {
  const template = document.createElement("template");
  const source = isSvg ? `<svg>${text}</svg>` : text;
  template.innerHTML = policy ? policy.createHTML(source) : source;
  return isSvg ? template.content.firstChild : template.content;
}

const fresh = new Set(); // ids of rows that wait until somebody wants them
const held = new Map(); // fragments that wait, since somebody uses what they replace
let isPressed = false; // the mouse: a click would miss what is replaced
const FIELDS = "input:not([type=checkbox], [type=radio], [type=hidden]), select, textarea";
const STOPS = "a, button, summary, input, select, textarea, [tabindex]";
const BOXES = "main tbody input[type=checkbox]";

function isUsed(element) {
  const [selection, active] = [getSelection(), document.activeElement];
  return isPressed || (element.contains(active) && active.matches(FIELDS)) ||
    (!selection.isCollapsed && selection.containsNode(element, true)) ||
    all("input, textarea", element).some((field) => field.value !== field.defaultValue); // somebody wrote it
}

// What the old one has of its user the new one gets: open details, checks, and then scrolling and focus.
function put(now, old) {
  const title = (each) => (each.querySelector("summary") ?? each).textContent;
  const like = (each, kind, within) => all(kind, within).filter((other) => title(other) === title(each));
  const twin = (each, kind) => (each.id ? now.querySelector(`#${CSS.escape(each.id)}`)
    : like(each, kind, now)[like(each, kind, old).indexOf(each)] ?? null);
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const same = focused === old ? now : focused && twin(focused, STOPS);
  const scrolled = all("[tabindex]", old).filter((each) => each.scrollTop || each.scrollLeft);
  const places = scrolled.map((each) => [twin(each, "[tabindex]"), each.scrollLeft, each.scrollTop]);
  for (const each of all("details", old)) (twin(each, "details") ?? {}).open = each.open;
  for (const { name, value } of all("input:checked", old)) {
    const box = all("input[type=checkbox]", now).find((each) => each.name === name && each.value === value);
    if (box) box.checked = true;
  }
  tick(now);
  old.replaceWith(now);
  for (const [part, left, top] of places) part?.scrollTo(left, top);
  same?.focus({ preventScroll: true });
  if (now.querySelector("thead")) freeze();
  count();
}
function replace(id, text) {
  const old = here(id);
  if (!old) return tell(id);
  if (isUsed(old)) return held.set(id, text);
  held.delete(id);
  const now = parse(text, old.ownerSVGElement).firstElementChild;
  tick(now);
  if (!now.isEqualNode(old)) put(now, old);
}

const [first, rest] = [(data) => data.split("\n", 1)[0], (data) => data.slice(data.indexOf("\n") + 1)];
const changes = {
  fragment: (data) => replace(first(data), rest(data)),
  removed: (id) => here(id)?.classList.add("gone"),
  announce,
};
// New rows come with the whole page, when somebody wants them.
function tell(id) {
  fresh.add(id);
  Object.assign(here("new-rows"), { hidden: false, textContent: `↑ ${fresh.size} new` });
}
async function fetched(address, id) {
  const answer = await fetch(address).catch(() => null);
  return answer?.ok ? parse(await answer.text()).querySelector(`#${CSS.escape(id)}`) : null;
}
async function refresh() {
  const now = await fetched(location.href, "content");
  if (!now) return;
  put(now, here("content"));
  fresh.clear();
  here("new-rows").hidden = true;
  reconnect(0);
}
let [said, talk] = [-5000, 0]; // at most one announcement in five seconds: the newest
function announce(textContent) {
  clearTimeout(talk);
  talk = setTimeout(() => {
    said = performance.now();
    Object.assign(here("announcements"), { textContent });
  }, Math.max(0, said + 5000 - performance.now()));
}

// A browser opens six connections to a server, so only four tabs have a stream; the others poll.
let [source, release] = [null, null]; // the stream, and what gives its lock back
let turn = 0; // what began in an earlier one gives up
let [timer, heard, streamAt, isPaused] = [0, 0, 0, false];
let [last, line] = ["", ""]; // the id of the last change, the number of the last line of output
let offset = Date.parse(html.dataset.now) - Date.now() || 0; // of the server's clock
const live = here("live");
function address(kind) {
  const query = new URLSearchParams(location.search);
  const shown = all("tbody tr[data-fragment]").slice(0, 200).map((row) => row.id).join();
  for (const [name, value] of Object.entries({ after: last, lines: line, shown })) query.set(`live_${name}`, value);
  return `${root}${kind}/${location.pathname.slice(root.length)}?${query}`;
}
function state(name, textContent) {
  live.dataset.state = name;
  Object.assign(live, { textContent, title: isPaused ? "Go on (p)" : "Pause (p)" });
}
const alive = (text) => (here("trouble").childElementCount ? state("away", "no database") : state("live", text));
function disconnect() {
  turn += 1;
  clearTimeout(timer);
  source?.close();
  release?.();
  source = release = null;
}
function reconnect(after_ms) {
  disconnect();
  if (!isPaused && !document.hidden) timer = setTimeout(connect, after_ms);
}
const lock = (name) => new Promise((resolve) => {
  const taken = (got) => (got ? new Promise((free) => { resolve(free); }) : resolve(null));
  navigator.locks.request(name, { ifAvailable: true }, taken).catch(() => resolve(null));
});
async function connect() {
  const mine = turn;
  const isAllowed = navigator.locks && performance.now() >= streamAt;
  let got = null;
  for (let place = 0; isAllowed && place < 4 && !got; place += 1) got = await lock(`pgflowd-${place}`);
  if (mine !== turn) return got?.();
  release = got;
  if (got) stream();
  else poll(mine);
}
function stream() {
  const [own, again_ms] = [new EventSource(address("live")), 1000 + 2000 * Math.random()];
  let hasOpened = false;
  source = own;
  heard = performance.now();
  own.onopen = () => { hasOpened = true; alive("live"); };
  own.onerror = () => { // if it never opened, no place is free, or nobody is there: poll for a while
    if (!hasOpened) streamAt = performance.now() + 15000;
    reconnect(hasOpened ? again_ms : 0);
  };
  const on = (kind, does) => own.addEventListener(kind, (event) => {
    heard = performance.now();
    if (event.lastEventId) last = event.lastEventId;
    alive((does(event.data), "live"));
  });
  for (const kind of Object.keys(changes)) on(kind, changes[kind]);
  on("line", print);
  on("heartbeat", (data) => { offset = Date.parse(data) - Date.now(); });
  on("end", () => reconnect(again_ms));
}
async function poll(mine) {
  const answer = await fetch(address("fragments")).catch(() => null);
  const news = answer?.ok && await answer.json().catch(() => null);
  if (mine !== turn) return;
  if (answer?.status === 401 || answer?.status === 403) return state("out", "log in again");
  if (news) {
    [offset, last] = [Date.parse(news.now) - Date.now(), news.id];
    for (const [kind, data] of news.changes) changes[kind](data);
    alive("live, every 5 s");
  } else [streamAt] = [0, state("away", "connecting")]; // it is away, or starts again
  timer = setTimeout(connect, news ? 5000 : 1500);
}
function pause() {
  if (live.dataset.state === "out") return location.reload();
  isPaused = !isPaused;
  reconnect(0);
  state(isPaused ? "paused" : "away", isPaused ? "paused" : "connecting");
}
function print(data) {
  const list = here("live-output");
  const { at, step, task, stream, level, text } = JSON.parse(rest(data));
  line = first(data);
  const isBelow = list.scrollHeight - list.scrollTop - list.clientHeight < 40; // it looks at the end
  const made = (tag, className, textContent) => Object.assign(document.createElement(tag), { className, textContent });
  const parts = Object.entries({ at: at?.slice(11, 19), stream: step && `${step}#${task}`, text });
  list.append(made("li", level ?? (stream === "stderr" ? "warning" : "info"), ""));
  list.lastChild.append(...parts.map(([name, words]) => made("span", name, words ?? "")));
  while (list.childElementCount > 5000) list.firstElementChild.remove();
  if (isBelow) list.scrollTop = list.scrollHeight;
}
const whole = Math.floor;
const two = (number) => String(whole(number)).padStart(2, "0");
const local = (at) => new Date(at - 60000 * new Date(at).getTimezoneOffset()).toISOString().slice(0, 19).replace("T", " ");

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${whole(s / 60)}m${two(s % 60)}s`;
  return s < 86400 ? `${whole(s / 3600)}h${two(s % 3600 / 60)}m` : `${whole(s / 86400)}d${whole(s % 86400 / 3600)}h`;
}
function told({ dataset, textContent }, at) {
  const since = (Date.now() + offset - at) / 1000;
  if ("ago" in dataset) return `${duration(since)} ago`;
  if ("since" in dataset) return duration(since);
  if ("until" in dataset) return since < 0 ? `in ${duration(-since)}` : "due";
  return "clock" in dataset && html.dataset.times ? local(at) : textContent;
}
function tick(within) {
  for (const time of all("[datetime]", within)) {
    const at = Date.parse(time.getAttribute("datetime"));
    const text = told(time, at);
    if (time.textContent !== text) time.textContent = text;
    if (html.dataset.times && time.title?.endsWith("UTC")) time.title = local(at);
  }
  for (const bar of all("rect[data-start]", within)) { // of a timeline
    const s = (Date.now() + offset - bar.dataset.start) / 1000;
    const room = 100 - bar.x.baseVal.valueInSpecifiedUnits; // until the server sends a longer axis
    bar.setAttribute("width", `${Math.min(Math.max(s * bar.dataset.scale, 0.3), room)}%`);
  }
}
function move(by) {
  const rows = all("main tbody tr").filter((row) => row.querySelector("a[href]"));
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  rows.at(at < 0 ? Math.min(0, by) : Math.max(0, at + by))?.querySelector("a[href]").focus();
}
let before = ""; // the key before this one
const keys = {
  "/": () => (all("[role=search] [type=search]")[0] ?? all("[role=search] :is(input, select)")[0])?.focus(),
  j: () => move(1),
  k: () => move(-1),
  x: () => document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click(),
  n: () => fresh.size && refresh(),
  p: pause,
  "?": () => here("keys").showModal(),
};
function press(event) {
  if (event.target.closest?.(FIELDS) || event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const link = before === "g" && document.querySelector(`nav [aria-keyshortcuts="g ${CSS.escape(event.key)}"]`);
  const does = link ? () => link.click() : Object.hasOwn(keys, event.key) && keys[event.key];
  before = event.key;
  if (!does) return;
  event.preventDefault();
  does();
}
// Columns keep their widths, whatever is put into them.
function freeze() {
  const heads = all("main thead th");
  for (const each of [...heads, ...all("main table")]) each.style.width = each.style.tableLayout = "";
  const widths = heads.map((head) => head.getBoundingClientRect().width);
  heads.forEach((head, at) => { head.style.width = `${widths[at]}px`; });
  for (const table of all("main table:has(thead)")) table.style.tableLayout = "fixed";
}
function count() {
  const [boxes, many] = [all(BOXES).length, all(`${BOXES}:checked`).length];
  const states = { checked: boxes > 0 && many === boxes, indeterminate: many > 0 && many < boxes };
  for (const each of all("[data-selected]")) each.textContent = many;
  for (const each of all("[data-select-all]")) Object.assign(each, states);
}
async function click(event) {
  const target = event.target.closest("[data-close], [data-copy], [data-load]");
  const { copy, load } = target?.dataset ?? {};
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (copy) navigator.clipboard?.writeText(copy).then(() => announce("copied"));
  else if (load !== undefined) {
    const part = (await fetched(target.href, "content"))?.querySelector(".tree > *");
    if (!part) return location.assign(target.href);
    target.replaceWith(part);
    part.querySelector("summary")?.focus();
  } else target.closest("dialog").close();
}
document.addEventListener("click", click);
document.addEventListener("keydown", press);
document.addEventListener("change", ({ target }) => {
  if ("selectAll" in target.dataset) for (const box of all(BOXES)) box.checked = target.checked;
  count();
});
for (const [kind, now] of [["pointerdown", true], ["pointerup", false], ["pointercancel", false]]) {
  document.addEventListener(kind, () => setTimeout(() => { isPressed = now; }));
}
here("new-rows").addEventListener("click", refresh);
setInterval(() => {
  if (document.hidden) return;
  tick(document);
  for (const [id, text] of [...held]) replace(id, text);
  if (source && performance.now() - heard > 40000) reconnect(0);
}, 1000);
addEventListener("resize", freeze);
tick(document);
freeze();
count();
if (html.dataset.now && !("answer" in html.dataset)) { // no error, no answer to a form
  live.addEventListener("click", pause);
  document.addEventListener("visibilitychange", () => reconnect(0));
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => event.persisted && reconnect(0));
  state("away", "connecting");
  reconnect(0);
}
