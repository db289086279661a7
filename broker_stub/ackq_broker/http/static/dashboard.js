// The dashboard: asks the broker's JSON every two seconds and shows it.
//
// Whatever clients of the broker named or sent reaches the page as text nodes and attribute values
// alone; nothing here makes HTML from a string, and the page's policy forbids it.
"use strict";

const POLL_MS = 2000;
const TIMEOUT_MS = 10000;
const HISTORY_MS = 5 * 60 * 1000;
const PAGE_ROWS = 50;
const PEEK_ROWS = 20;
const TOKEN_KEY = "ackq-token";

// --- elements ---

const SVG = new Set(["svg", "polyline", "polygon", "path", "rect"]);

/** An element as it should be: tag, attributes (`on...` are listeners), children. */
function h(tag, props, ...children) {
  const kept = children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false && each !== "");
  return { tag, props: props ?? {}, children: kept.map((each) => (typeof each === "number" ? String(each) : each)) };
}

/** Makes the children of an element as they should be, changing only what differs. */
function patch(parent, children) {
  const focused = document.activeElement;
  patchChildren(parent, [children].flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false && each !== ""));
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
}

function patchChildren(parent, wanted) {
  const keys = new Set(wanted.map((each) => each.props?.key).filter((key) => key !== undefined));
  const known = new Map();
  for (const node of [...parent.childNodes]) {
    if (node.ackqKey === undefined) continue;
    if (keys.has(node.ackqKey)) known.set(node.ackqKey, node);
    else node.remove();
  }
  let at = parent.firstChild;
  for (const want of wanted) {
    if (typeof want === "string") {
      if (at?.nodeType === Node.TEXT_NODE) {
        if (at.data !== want) at.data = want;
        at = at.nextSibling;
      } else parent.insertBefore(document.createTextNode(want), at);
      continue;
    }
    const key = want.props.key;
    let node = key === undefined ? at : known.get(key);
    if (!node || node.ackqTag !== want.tag || node.ackqKey !== key) {
      node = SVG.has(want.tag) ? document.createElementNS("http://www.w3.org/2000/svg", want.tag) : document.createElement(want.tag);
      node.ackqTag = want.tag;
      node.ackqKey = key;
      node.ackqProps = {};
      parent.insertBefore(node, at);
    } else if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    patchProps(node, want.props);
    patchChildren(node, want.children);
    // A choice is made among options, which come after it.
    if (want.tag === "select") setProp(node, "value", want.props.value);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function patchProps(node, props) {
  const before = node.ackqProps;
  for (const name of Object.keys(before)) if (!(name in props)) setProp(node, name, undefined);
  for (const [name, value] of Object.entries(props)) if (before[name] !== value) setProp(node, name, value);
  node.ackqProps = props;
}

function setProp(node, name, value) {
  if (name === "key") return;
  if (name.startsWith("on")) node[name] = value ?? null;
  else if (name === "value") {
    // What somebody types or chooses is theirs.
    if (node !== document.activeElement && node.value !== value) node.value = value ?? "";
  }
  else if (name === "width%") node.style.width = `${value}%`;
  else if (value === undefined || value === null || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}

// --- words and numbers ---

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function figure(value) {
  return (value < 100000 ? whole : short).format(value);
}

/** A count, with the exact number as a tooltip where it is shortened. */
function count(value) {
  return h("span", { class: value ? undefined : "zero", title: value < 100000 ? undefined : whole.format(value) }, figure(value));
}

function plural(value, word) {
  return `${whole.format(value)} ${word}${value === 1 ? "" : "s"}`;
}

function duration(ms) {
  const s = Math.floor(ms / 1000);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

function age(ms) {
  return ms ? duration(ms) : h("span", { class: "zero" }, "–");
}

function bytes(value) {
  if (!value) return h("span", { class: "zero" }, "0");
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const at = Math.min(Math.floor(Math.log2(value) / 10), units.length - 1);
  const scaled = value / 1024 ** at;
  return `${at && scaled < 100 ? scaled.toFixed(1) : Math.round(scaled)} ${units[at]}`;
}

function rate(value) {
  if (value === null || value === undefined) return h("span", { class: "zero", title: "Known after the second update" }, "–");
  if (!value) return h("span", { class: "zero" }, "0");
  if (value < 10) return value.toFixed(1);
  return value < 100000 ? whole.format(Math.round(value)) : short.format(value);
}

function time(us) {
  return us ? new Date(us / 1000).toLocaleString("sv", { hour12: false }) : "–";
}

/** A text of a client with what cannot be seen, or turns the text around, made visible. */
function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g, (each) =>
    each < " " ? String.fromCharCode(0x2400 + each.charCodeAt(0)) : `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** A name that a client chose. */
function named(text) {
  return h("bdi", {}, visible(text));
}

/** A name of which a list shows two lines. */
function clamped(text) {
  return text.length < 60 ? named(text) : h("bdi", { class: "clamp", title: visible(text) }, visible(text));
}

function link(view, name, ...children) {
  return h("a", { href: `#/${view}/${encodeURIComponent(name)}` }, children.length ? children : named(name));
}

function badge(kind, text, title) {
  return h("span", { class: `badge ${kind}`, title }, text);
}

// --- rates and their history, which the page keeps and the broker does not ---

const samples = new Map();

/** What counters gained a second, between the last two different looks; null before the second. */
function rates(key, takenUs, counters) {
  let kept = samples.get(key);
  if (!kept) samples.set(key, (kept = { takenUs, counters, rates: counters.map(() => null), history: [] }));
  else if (takenUs > kept.takenUs) {
    const seconds = (takenUs - kept.takenUs) / 1e6;
    const gained = counters.map((value, at) => value - kept.counters[at]);
    // A long gap, or a counter that began anew: the two looks have nothing to say together.
    const fit = seconds < 60 && gained.every((each) => each >= 0);
    Object.assign(kept, { takenUs, counters, rates: gained.map((each) => (fit ? each / seconds : null)) });
  }
  kept.seen = Date.now();
  return kept;
}

/** Adds a look to the history of a key, of the last minutes. */
function remember(kept, values) {
  const last = kept.history.at(-1);
  if (last && last.takenUs >= kept.takenUs) return;
  kept.history.push({ takenUs: kept.takenUs, ...values });
  while (kept.takenUs - kept.history[0].takenUs > HISTORY_MS * 1000) kept.history.shift();
}

function forgetOldSamples() {
  if (samples.size < 2000) return;
  const before = Date.now() - 60000;
  for (const [key, kept] of samples) if (kept.seen < before) samples.delete(key);
}

/** A small chart of one value of a history; the right edge is now. */
function spark(history, field, kind, label, format) {
  const points = history.filter((each) => each[field] !== null && each[field] !== undefined);
  const last = points.at(-1);
  const top = Math.max(...points.map((each) => each[field]), 0);
  const said = points.length ? `${label}, last ${duration((last.takenUs - points[0].takenUs) / 1000)}: at most ${format(top)}, now ${format(last[field])}` : `${label}: no history yet`;
  const span = points.length ? Math.max(last.takenUs - points[0].takenUs, 60e6) : 1;
  const place = (each) => `${(100 - (100 * (last.takenUs - each.takenUs)) / span).toFixed(2)},${(23 - (top ? (22 * each[field]) / top : 0)).toFixed(2)}`;
  const line = points.map(place).join(" ");
  return h("svg", { class: `spark ${kind}`, viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": said },
    points.length > 1 && h("polygon", { points: `${place(points[0]).split(",")[0]},24 ${line} 100,24` }),
    points.length > 1 && h("polyline", { points: line }));
}

const plainRate = (value) => `${value < 10 ? value.toFixed(1) : whole.format(Math.round(value))} a second`;

// --- state ---

const state = {
  token: sessionStorage.getItem(TOKEN_KEY) ?? "",
  route: { view: "queues", name: "", query: new URLSearchParams() },
  broker: null,
  data: null,
  refusal: null,
  seen: 0,
  gone: 0,
  late: false,
  filter: "",
  show: "all",
  sort: "age",
  offset: 0,
  dialog: null,
  peeked: new Map(),
};

class Refusal extends Error {
  constructor(status, said) {
    super(said?.error?.message ?? `The broker answered with status ${status}.`);
    this.status = status;
  }
}

/** Asks the broker; throws Refusal for what it refuses, and another error when it does not answer. */
async function ask(path, body) {
  const headers = {};
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method: body ? "POST" : "GET",
    headers,
    body: body && JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    signal: AbortSignal.timeout(body ? 60000 : TIMEOUT_MS),
  });
  const said = await answer.json().catch(() => null);
  if (answer.status === 502 || answer.status === 503 || answer.status === 504) throw new Error("The broker is not serving.");
  if (!answer.ok) throw new Refusal(answer.status, said);
  return said;
}

// --- routes ---

const VIEWS = {
  queues: { title: "Queues", path: () => `api/queues?${new URLSearchParams({ filter: state.filter, show: state.show, sort: state.sort, offset: state.offset, limit: PAGE_ROWS })}`, draw: drawQueues },
  queue: { title: "Queue", path: () => `api/queue?${new URLSearchParams({ name: state.route.name })}`, draw: drawQueue },
  peek: { title: "Peek", path: () => `api/peek?${new URLSearchParams({ queue: state.route.name, from: state.route.query.get("from") ?? 0, count: PEEK_ROWS })}`, draw: drawPeek, once: true },
  sessions: { title: "Sessions", path: () => `api/sessions?${new URLSearchParams({ filter: state.filter, offset: state.offset })}`, draw: drawSessions },
  links: { title: "Links", path: () => `api/links?${new URLSearchParams({ filter: state.filter, offset: state.offset })}`, draw: drawLinks },
  link: { title: "Link", path: () => `api/links?${new URLSearchParams({ name: state.route.name })}`, draw: drawLink },
  dead: { title: "Dead letters", path: () => "api/dead_letters", draw: drawDeadLetters },
  publishers: { title: "Publishers", path: () => "api/publishers", draw: drawPublishers },
};
const TABS = { queues: "Queues", sessions: "Sessions", links: "Links", dead: "Dead letters", publishers: "Publishers" };

/** The views that the user may see: publishers are shown to observers alone. */
function tabs() {
  return Object.keys(TABS).filter((id) => id !== "publishers" || state.broker?.publishers !== undefined);
}

function readRoute() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  let name = rest.join("/");
  try {
    name = decodeURIComponent(name);
  } catch {
    // A name with a percent sign that somebody typed into the address: as it stands.
  }
  return { view: Object.hasOwn(VIEWS, view) ? view : "queues", name, query: new URLSearchParams(query) };
}

function follow() {
  const before = state.route;
  state.route = readRoute();
  if (before.view !== state.route.view) Object.assign(state, { filter: "", offset: 0, show: "all" });
  Object.assign(state, { data: null, refusal: null, peeked: new Map() });
  closeDialog();
  draw();
  document.getElementById("main").focus({ preventScroll: true });
  scrollTo(0, 0);
  poll();
}

// --- polling ---

let timer = 0;
let polls = 0;

/** Asks for the broker and the view, shows them, and asks again in two seconds. */
async function poll() {
  clearTimeout(timer);
  const mine = ++polls;
  const late = setTimeout(() => { state.late = mine === polls; draw(); }, 2 * POLL_MS);
  const { view } = state.route;
  const settled = VIEWS[view].once && state.data;
  const asked = [ask("api/broker"), settled ? Promise.resolve(state.data) : ask(VIEWS[view].path())];
  const [broker, data] = await Promise.allSettled(asked);
  clearTimeout(late);
  if (mine !== polls) return;
  state.late = false;
  const failure = [broker, data].map((each) => each.reason).find((each) => each && !(each instanceof Refusal));
  let refused = null;
  if (failure) {
    if (!state.gone) say("The broker does not answer.");
    state.gone ||= Date.now();
  } else {
    if (state.gone) toast("The broker is back.");
    Object.assign(state, { gone: 0, seen: Date.now() });
    refused = broker.reason?.status === 401 ? broker.reason : data.reason ?? null;
    if (broker.value) state.broker = { ...broker.value, kept: looked("totals", broker.value.taken_us, broker.value.totals) };
    if (refused?.status === 401) {
      state.broker = null;
      signIn(state.token ? refused.message : "");
    }
    else if (refused && refused.message !== state.refusal?.message) say(refused.message);
    if (data.value) state.data = data.value;
    if (refused?.status === 404 || refused?.status === 403) state.data = null;
    state.refusal = refused;
  }
  forgetOldSamples();
  draw();
  // A refusal stands until something is changed; each one is a line in the broker's audit.
  if (refused?.status === 401 || refused?.status === 403) return;
  if (!document.hidden) timer = setTimeout(poll, POLL_MS);
}

// --- messages to the reader ---

let toastTimer = 0;

function toast(text) {
  clearTimeout(toastTimer);
  patch(document.getElementById("toast"), [visible(text)]);
  toastTimer = setTimeout(() => patch(document.getElementById("toast"), []), 6000);
}

/** Says something at once to who listens to the page. */
function say(text) {
  patch(document.getElementById("announcer"), [visible(text)]);
}

// --- drawing ---

function draw() {
  document.body.classList.toggle("gone", Boolean(state.gone));
  const { view, name } = state.route;
  document.title = `${state.gone ? "No answer · " : ""}${name ? visible(name) : VIEWS[view].title} · ackq`;
  patch(document.getElementById("header"), drawHeader());
  patch(document.getElementById("banners"), drawBanners());
  patch(document.getElementById("main"), h("div", { key: `${view}/${name}`, class: "view" }, drawMain()).children);
  drawDialog();
}

function drawHeader() {
  const { broker } = state;
  const { view } = state.route;
  const current = { queue: "queues", peek: "queues", link: "links" }[view] ?? view;
  const counts = broker && { queues: broker.totals.queues, sessions: broker.sessions, links: broker.links, dead: broker.totals.dead_letters_held, publishers: broker.publishers };
  const entries = tabs().map((id) =>
    h("a", { key: id, href: `#/${id}`, "aria-current": id === current ? "page" : undefined }, TABS[id],
      counts && counts[id] > 0 && h("span", { class: `count${(id === "dead" && counts[id]) || (id === "publishers" && broker.blocked) ? " alarm" : ""}` }, short.format(counts[id]))));
  const live = liveness();
  return [
    h("a", { key: "brand", class: "brand", href: "#/queues" },
      h("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, h("rect", { width: 16, height: 16, rx: 4, fill: "#2a6fdb" }), h("path", { d: "M4 5h8M4 8h8M4 11h5", stroke: "#fff", "stroke-width": 1.6, "stroke-linecap": "round" })),
      "ackq", h("small", {}, location.host, broker && ` · ${broker.version}`)),
    h("nav", { key: "nav", "aria-label": "Views" }, entries),
    h("div", { key: "side", class: "side" },
      h("span", { class: `live ${live[0]}`, title: state.seen ? `Last answer ${new Date(state.seen).toLocaleTimeString("sv")}` : undefined }, live[1]),
      broker?.user && h("span", { key: "user", class: "user", title: `Signed in as ${broker.user}` }, named(broker.user)),
      broker?.user && h("button", { key: "out", class: "plain small", onclick: signOut }, "Sign out"),
      h("button", { key: "help", class: "small", onclick: showKeys, title: "Keyboard shortcuts (?)", "aria-label": "Keyboard shortcuts" }, "?")),
  ];
}

/** Whether what is shown is what the broker has now: a class, and a word. */
function liveness() {
  if (state.gone) return ["gone", "No answer"];
  if (state.refusal?.status === 401) return ["waiting", "Not signed in"];
  if (state.refusal && state.refusal.status !== 404) return ["waiting", "Not updated"];
  if (!state.data && !state.refusal) return ["waiting", "Connecting"];
  if (state.late) return ["waiting", "Waiting"];
  return VIEWS[state.route.view].once && state.data ? ["waiting", "Not updated"] : ["", "Live"];
}

function drawBanners() {
  const { broker } = state;
  const found = [];
  if (state.gone) {
    found.push(h("div", { key: "gone", class: "banner bad" }, h("strong", {}, `No answer from the broker at ${location.host}.`),
      h("span", {}, state.seen ? `This page shows the state of ${new Date(state.seen).toLocaleTimeString("sv")}. ` : "", "It asks the broker again every two seconds.")));
  }
  if (broker?.blocked) {
    found.push(h("div", { key: "blocked", class: "banner bad" }, h("strong", {}, "Publishers are blocked."), h("span", {}, visible(broker.blocked)), broker.publishers !== undefined && h("a", { href: "#/publishers" }, "Show publishers")));
  }
  if (broker?.held_back) {
    found.push(h("div", { key: "held", class: "banner warn" }, h("strong", {}, `${plural(broker.held_back, "client")} of an older history ${broker.held_back === 1 ? "is" : "are"} refused.`),
      h("span", {}, "The data was restored from a copy or repaired. Check it, and then run ", h("code", {}, "ackq broker accept-history"))));
  }
  if (broker?.sync_mode === "none") {
    found.push(h("div", { key: "sync", class: "banner warn" }, h("strong", {}, "This broker does not sync to disk."), h("span", {}, "A power cut loses confirmed messages.")));
  }
  return found;
}

function drawMain() {
  const { view, name } = state.route;
  const heading = h("h1", { key: "h1", class: "hidden" }, name ? named(name) : VIEWS[view].title);
  if (state.refusal?.status === 401) {
    return [heading, empty("Sign in to see this broker", [h("button", { class: "primary", onclick: () => signIn("") }, "Sign in")])];
  }
  if (state.refusal && !state.data) {
    const gone = state.refusal.status === 404;
    return [heading, empty(gone ? h("span", {}, "Queue ", named(name), " does not exist") : "Refused",
      [h("span", { class: "refused" }, visible(state.refusal.message)), h("a", { href: "#/queues" }, "All queues")])];
  }
  if (!state.data) return [heading, state.gone ? empty("Waiting for the broker", []) : h("p", { key: "loading", class: "muted" }, "Loading…")];
  return VIEWS[view].draw(state.data);
}

function empty(title, more) {
  return [h("div", { key: "empty", class: "panel empty" }, h("strong", {}, title), more)];
}

function tile(label, value, under, chart, alarm) {
  return h("div", { key: label, class: `tile${alarm ? " alarm" : ""}` }, h("span", { class: "label" }, label), h("span", { class: "value" }, value), h("span", { class: "under" }, under), chart);
}

/** A table with headers; a column: label, cell, and n(umber), wide, sort, absent on phones. */
function table(caption, columns, rows, options = {}) {
  const header = (column) => {
    const sorted = options.sort === column.sort && column.sort;
    return h("th", { key: column.label || "do", scope: "col", role: "columnheader", class: column.n ? "n" : undefined, "aria-sort": sorted ? (column.sort === "name" ? "ascending" : "descending") : undefined, title: column.title },
      column.sort && options.onsort ? h("button", { class: "sort", onclick: () => options.onsort(column.sort) }, column.label) : column.label || h("span", { class: "hidden" }, "Actions"));
  };
  const cell = (column, row, at) => {
    const kind = [column.n && "n", column.wide && "wide", column.absent && "absent", column.class].filter(Boolean).join(" ") || undefined;
    return h(at ? "td" : "th", { key: column.label || "do", role: at ? "cell" : "rowheader", scope: at ? undefined : "row", class: kind, "data-label": at && column.label ? column.label : undefined }, column.cell(row));
  };
  return h("div", { key: `table ${caption}`, class: "scroll" }, h("table", { class: "cards", role: "table", "aria-label": caption },
    h("caption", { class: "hidden" }, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(header))),
    h("tbody", { role: "rowgroup" }, rows.map((row, at) => h("tr", { key: options.key ? options.key(row) : at, role: "row" }, columns.map((column, place) => cell(column, row, place)))))));
}

function panel(title, head, ...body) {
  const heading = title === VIEWS[state.route.view].title ? "h1" : "h2";
  return h("section", { key: title, class: "panel", "aria-label": title }, h("div", { class: "head" }, h(heading, {}, title), head), body);
}

function pager(data) {
  const last = Math.min(state.offset + data.rows.length, data.matched);
  const step = data.rows.length && state.route.view !== "queues" ? 100 : PAGE_ROWS;
  const turn = (offset) => () => { state.offset = Math.max(0, offset); poll(); };
  return h("div", { key: "pager", class: "pager" },
    h("span", { class: "number" }, data.matched ? `${whole.format(state.offset + 1)}–${whole.format(last)} of ${whole.format(data.matched)}` : "None", data.matched < data.total ? ` that match, ${whole.format(data.total)} in all` : ""),
    h("span", { class: "spring" }),
    h("button", { key: "back", class: "small", id: "page-back", disabled: !state.offset, onclick: turn(state.offset - step) }, "Previous"),
    h("button", { key: "on", class: "small", id: "page-on", disabled: last >= data.matched, onclick: turn(state.offset + step) }, "Next"));
}

let typing = 0;

function filterBox(label) {
  return h("input", { key: "filter", id: "filter", class: "grow", type: "search", placeholder: `${label}  ( / )`, "aria-label": label, value: state.filter, autocomplete: "off", spellcheck: "false",
    oninput: (event) => {
      state.filter = event.target.value;
      state.offset = 0;
      clearTimeout(typing);
      typing = setTimeout(poll, 150);
    } });
}

// --- queues ---

const SHOW = { all: "All", messages: "With messages", unacked: "With unacked", dead: "With dead letters", full: "At their bound" };
const SORT = { age: "Oldest message", name: "Name", ready: "Ready", unacked: "Unacked", payload_bytes: "Size", dead_letters_held: "Dead letters", published: "Published" };

/** The six figures over a list or a queue; `figures` has totals or one queue. */
function tiles(label, figures, kept, oldest) {
  const { history } = kept;
  const [published, accepted] = kept.rates;
  return h("section", { key: "tiles", class: "tiles", "aria-label": label },
    tile("Oldest message", age(figures.oldest_age_ms), oldest, spark(history, "age", "depth", "Age of the oldest message", duration)),
    tile("Ready", count(figures.ready), [figures.payload_bytes > 0 && bytes(figures.payload_bytes), figures.delayed > 0 && ` · ${whole.format(figures.delayed)} delayed`], spark(history, "ready", "depth", "Ready messages", whole.format)),
    tile("Unacked", count(figures.unacked), figures.staged ? `${whole.format(figures.staged)} staged` : null, spark(history, "unacked", "depth", "Unacked messages", whole.format)),
    tile("Published", [rate(published), h("small", {}, " /s")], `${figure(figures.published)} in total`, spark(history, "in", "in", "Published", plainRate)),
    tile("Accepted", [rate(accepted), h("small", {}, " /s")], `${figure(figures.accepted)} in total`, spark(history, "out", "out", "Accepted", plainRate)),
    tile("Dead letters", count(figures.dead_letters_held), figures.dropped ? `${whole.format(figures.dropped)} dropped` : null, spark(history, "dead", "depth", "Dead letters", whole.format), figures.dead_letters_held > 0));
}

/** Rates and history of totals or of a queue. */
function looked(key, takenUs, figures) {
  const kept = rates(key, takenUs, [figures.published, figures.accepted]);
  remember(kept, { in: kept.rates[0], out: kept.rates[1], ready: figures.ready, unacked: figures.unacked, age: figures.oldest_age_ms, dead: figures.dead_letters_held });
  return kept;
}

function drawQueues(data) {
  const { broker } = state;
  for (const row of data.rows) row.rates = rates(`queue ${row.queue_id}`, data.taken_us, [row.published, row.accepted]).rates;
  const choose = (field) => (event) => { state[field] = event.target.value; state.offset = 0; poll(); };
  const option = ([value, label]) => h("option", { key: value, value }, label);
  const head = [
    filterBox("Filter by name"),
    h("label", { key: "show", class: "inline" }, "Show", h("select", { id: "show", value: state.show, onchange: choose("show") }, Object.entries(SHOW).map(option))),
    h("label", { key: "sort", class: "inline sortbox" }, "Sort", h("select", { id: "sort", value: state.sort, onchange: choose("sort") }, Object.entries(SORT).map(option))),
  ];
  const columns = [
    { label: "Queue", sort: "name", wide: true, class: "name-cell", cell: (row) => [link("queue", row.queue, clamped(row.queue)), " ", row.full && badge("bad", "full", "At its bound"), " ", !row.durable && badge("", "not durable")] },
    { label: "Oldest", sort: "age", n: true, cell: (row) => age(row.oldest_age_ms), title: "Age of the oldest message, ready or unacked" },
    { label: "Ready", sort: "ready", n: true, cell: (row) => count(row.ready) },
    { label: "Unacked", sort: "unacked", n: true, cell: (row) => count(row.unacked) },
    { label: "Published /s", sort: "published", n: true, cell: (row) => rate(row.rates[0]), title: "Sorted by the total number published" },
    { label: "Accepted /s", sort: "accepted", n: true, cell: (row) => rate(row.rates[1]), title: "Sorted by the total number accepted" },
    { label: "Dead letters", sort: "dead_letters_held", n: true, cell: (row) => (row.dead_letters_held ? badge("bad", short.format(row.dead_letters_held)) : count(0)) },
    { label: "Size", sort: "payload_bytes", n: true, absent: true, cell: (row) => bytes(row.payload_bytes) },
    { label: "Readers", n: true, absent: true, cell: (row) => count(row.sessions + row.consumers), title: "Sessions and consumers" },
  ];
  const body = data.rows.length ? table("Queues", columns, data.rows, { key: (row) => row.queue_id, sort: state.sort, onsort: (sort) => { state.sort = sort; state.offset = 0; poll(); } })
    : h("div", { key: "none", class: "empty" }, data.total
      ? [h("strong", {}, "No queue matches"), h("button", { onclick: () => { Object.assign(state, { filter: "", show: "all", offset: 0 }); document.getElementById("filter").value = ""; document.getElementById("show").value = "all"; poll(); } }, "Show all")]
      : [h("strong", {}, "This broker has no queues yet"), h("span", {}, "Declare the first one and publish to it:"), h("pre", {}, "ackq queue declare orders\nackq publish orders '{\"id\": 1}'")]);
  return [broker && tiles("All queues", broker.totals, broker.kept, broker.totals.oldest_queue ? ["in ", link("queue", broker.totals.oldest_queue)] : "no messages"), panel("Queues", head, body, data.total > 0 && pager(data))];
}

// --- one queue ---

function drawQueue(data) {
  const kept = looked(`queue ${data.queue_id}`, data.taken_us, data);
  const { properties } = data;
  const known = (value, shown = value) => (value ? shown : "none");
  const facts = [
    ["Durable", properties.durable ? "yes" : "no"],
    ["Bound", properties.max_length || properties.max_bytes ? [properties.max_length > 0 && plural(properties.max_length, "message"), properties.max_length && properties.max_bytes ? ", " : "", properties.max_bytes > 0 && bytes(properties.max_bytes), `, then ${properties.overflow}`] : "none"],
    ["Messages expire after", known(properties.message_ttl_ms, duration(properties.message_ttl_ms))],
    ["Queue expires unused after", known(properties.expires_ms, duration(properties.expires_ms))],
    ["Delivery limit", known(properties.delivery_limit, `${plural(properties.delivery_limit, "failed delivery").replace("deliverys", "deliveries")}${properties.drop_on_limit ? ", then dropped" : ""}`)],
    ["Dead-letter queue", properties.dead_letter_queue ? link("queue", properties.dead_letter_queue) : "none"],
    ["Redelivery delay", known(properties.redelivery_delay_ms, `${duration(properties.redelivery_delay_ms)}${properties.redelivery_delay_max_ms > properties.redelivery_delay_ms ? `, up to ${duration(properties.redelivery_delay_max_ms)}` : ""}`)],
    ["Accepted messages stay for", known(properties.retain_ms, [duration(properties.retain_ms), data.retained_payload_bytes > 0 && [": ", bytes(data.retained_payload_bytes), ", ", duration(data.retained_age_ms), " back"]])],
    ["Published in total", count(data.published)],
    ["Accepted in total", count(data.accepted)],
    ["Dead-lettered from this queue", count(data.dead_lettered)],
    ["Expired in total", count(data.expired)],
    ["Dropped in total", count(data.dropped)],
    ["Dead letters come from", data.sources.length ? list(data.sources.map((name) => link("queue", name)), data.source_count) : "no queue"],
  ];
  return [
    h("div", { key: "title" },
      h("p", { class: "crumbs" }, h("a", { href: "#/queues" }, "Queues"), " /"),
      h("div", { class: "title" }, h("h1", {}, named(data.queue)), data.full && badge("bad", "full"), !data.durable && badge("", "not durable"),
        h("div", { class: "actions" },
          data.may.includes("peek") && h("a", { key: "peek", class: "button", id: "peek", href: `#/peek/${encodeURIComponent(data.queue)}` }, "Peek"),
          data.dead && data.may.includes("redrive") && h("button", { key: "redrive", id: "redrive", onclick: () => confirmRedrive(data.dead) }, "Redrive…"),
          data.may.includes("purge") && h("button", { key: "purge", id: "purge", class: "danger", disabled: !data.ready, title: data.ready ? undefined : "No ready message", onclick: () => confirmPurge(data) }, "Purge…")))),
    tiles("Now", data, kept, null),
    panel("Who holds messages", null, drawHolders(data)),
    data.dead && drawDead(data.dead, false),
    data.batch_count > 0 && panel("Staged, not committed", badge("", plural(data.batch_count, "batch").replace("batchs", "batches")), table("Staged batches", [
      { label: "Writer", wide: true, class: "id", cell: (row) => named(row.writer) },
      { label: "Batch", n: true, cell: (row) => whole.format(row.batch_id) },
      { label: "Rows", n: true, cell: (row) => count(row.rows) }], data.batches)),
    h("div", { key: "two", class: "two" },
      panel("Properties", null, h("dl", { class: "facts" }, facts.map(([label, value]) => h("div", { key: label }, h("dt", {}, label), h("dd", {}, value))))),
      panel("Bindings", data.binding_count > data.bindings.length && badge("", `${data.bindings.length} of ${whole.format(data.binding_count)}`),
        data.bindings.length ? table("Bindings", [{ label: "Exchange", cell: (row) => named(row.exchange) }, { label: "Binding key", wide: true, class: "id", cell: (row) => (row.key ? named(row.key) : h("span", { class: "muted" }, "(empty)")) }], data.bindings)
          : h("p", { class: "note" }, "None: publishers reach the queue only by its name."))),
  ];
}

function list(parts, total) {
  return [parts.map((part, at) => [at ? ", " : "", part]), total > parts.length && ` and ${whole.format(total - parts.length)} more`];
}

function readerState(row) {
  if (row.detached) return badge("warn", "timed out", "Its reader was away for too long, and the leased messages went back to their queues");
  if (row.live) return badge("ok", "live");
  return row.leased ? badge("warn", "no reader", "No query is connected; the lease waits for the query with its checkpoint") : badge("", "away");
}

function sessionColumns(more) {
  return [
    { label: "Session", wide: true, class: "name-cell", cell: (row) => [clamped(row.session), " ", readerState(row)] },
    { label: "Holds", n: true, cell: (row) => count(row.leased) },
    { label: "Since", n: true, cell: (row) => age(row.lease_age_ms) },
    { label: "Batch", n: true, cell: (row) => (row.query_id ? whole.format(row.batch_id) : h("span", { class: "zero" }, "–")) },
    { label: "Attempts", n: true, cell: (row) => (row.attaches > 1 ? badge("warn", whole.format(row.attaches), "How many readers have attached to this lease") : count(row.attaches)), title: "How many readers have attached to this lease" },
    { label: "Retained", n: true, cell: (row) => (row.retained_batches > 1 ? [bytes(row.retained_payload_bytes), " · ", age(row.retained_age_ms)] : h("span", { class: "zero" }, "–")), title: "Accepted batches that can be read again: their bytes, and how far back they go" },
    { label: "Query", wide: true, class: "id", cell: (row) => (row.query_id ? named(row.query_id) : h("span", { class: "zero" }, "not known")) },
    { label: "Reader", wide: true, cell: (row) => (row.holder ? [named(row.holder.host), ` · process ${row.holder.pid}`, row.holder.application && [" · ", named(row.holder.application)]] : h("span", { class: "zero" }, "none")) },
    ...more,
    { label: "", wide: true, class: "actions-cell", cell: (row) => state.broker?.may_release && (row.all ?? row.leased) > 0 && h("button", { class: "small", "aria-label": `Release session ${visible(row.session)}`, onclick: () => confirmRelease(row) }, "Release…") },
  ];
}

function drawHolders(data) {
  const readers = data.readers.map((row) => ({ ...row, leased: row.detached ? 0 : data.held[row.session] ?? 0, all: row.leased }));
  const parts = [];
  if (readers.length) parts.push(table("Sessions that read this queue", sessionColumns([]), readers, { key: (row) => row.session }));
  if (data.reader_count > readers.length) parts.push(h("p", { key: "more", class: "note" }, `${whole.format(data.reader_count - readers.length)} more sessions read it.`));
  if (data.channels.length) {
    parts.push(table("Channels that hold messages of this queue", [
      { label: "Channel", wide: true, class: "name-cell", cell: (row) => [named(row.channel || "not named"), " ", row.connected ? badge("ok", "connected") : badge("warn", "cut", "The channel ends soon unless its client reconnects")] },
      { label: "Holds", n: true, cell: (row) => count(row.messages) },
      { label: "Since", n: true, cell: (row) => age(row.age_ms), title: "Since the oldest held message was delivered" },
      { label: "Quiet for", n: true, cell: (row) => age(row.quiet_ms), title: "Since the channel last settled a message" },
    ], data.channels));
  }
  if (data.channel_count > data.channels.length) parts.push(h("p", { key: "more channels", class: "note" }, `${whole.format(data.channel_count - data.channels.length)} more channels hold messages.`));
  if (data.channel_consumers.length) {
    parts.push(table("Consumers of this queue", [
      { label: "Consumer", wide: true, class: "name-cell", cell: (row) => [named(row.consumer), " ", row.no_ack && badge("", "no acks"), " ", !row.has_room && badge("warn", "no room", "It holds as many unacked messages as its prefetch or its channel allows")] },
      { label: "Unacked", n: true, cell: (row) => count(row.unacked) },
      { label: "Prefetch", n: true, cell: (row) => (row.prefetch ? count(row.prefetch) : h("span", { class: "zero" }, "none")) },
      { label: "Channel", wide: true, cell: (row) => named(row.channel || "not named") },
    ], data.channel_consumers));
  }
  if (data.delayed && data.next_ready_ms) parts.push(h("p", { key: "delayed", class: "note" }, `${plural(data.delayed, "message")} delayed; the first is ready in ${duration(data.next_ready_ms)}.`));
  return parts.length ? parts : h("p", { class: "note" }, data.ready ? "Nobody: no session reads this queue, and it has no consumer." : "Nobody.");
}

// --- dead letters ---

const CAUSES = { rejected: "rejected", delivery_limit: "over its delivery limit", expired: "expired" };

function drawDead(dead, titled) {
  const top = Math.max(...dead.causes.map((each) => each.messages), 1);
  const from = (row) => (row.queue ? link("queue", row.queue) : h("span", { class: "muted" }, "–"));
  const head = [
    badge("bad", plural(dead.messages, "message")),
    titled && h("span", { key: "spring", class: "spring" }),
    titled && dead.may.includes("peek") && h("a", { key: "peek", class: "button", href: `#/peek/${encodeURIComponent(dead.queue)}` }, "Peek"),
    titled && dead.may.includes("redrive") && h("button", { key: "redrive", "aria-label": `Redrive ${visible(dead.queue)}`, onclick: () => confirmRedrive(dead) }, "Redrive…"),
  ];
  const title = titled ? link("queue", dead.queue) : "Dead letters by cause";
  return h("section", { key: `dead ${dead.queue}`, class: "panel", "aria-label": titled ? `Dead letters in ${visible(dead.queue)}` : "Dead letters by cause" },
    h("div", { class: "head" }, h("h2", {}, title), head),
    table(`Dead letters of ${visible(dead.queue)} by cause`, [
      { label: "Cause", cell: (row) => CAUSES[row.cause] ?? visible(row.cause) },
      { label: "From", cell: from },
      { label: "Messages", n: true, cell: (row) => count(row.messages) },
      { label: "Share", absent: true, class: "share", cell: (row) => h("span", { class: "bar", "width%": Math.round((100 * row.messages) / top), "aria-hidden": "true" }) }], dead.causes),
    dead.reasons.some((row) => row.reason !== row.cause) && table(`Reasons of ${visible(dead.queue)}`, [
      { label: dead.reason_count > dead.reasons.length ? `Reason (${dead.reasons.length} of ${whole.format(dead.reason_count)})` : "Reason", wide: true, cell: (row) => named(row.reason) },
      { label: "Cause", cell: (row) => CAUSES[row.cause] ?? visible(row.cause) },
      { label: "From", absent: true, cell: from },
      { label: "Messages", n: true, cell: (row) => count(row.messages) }], dead.reasons));
}

function drawDeadLetters(data) {
  if (!data.rows.length) return [h("h1", { key: "h1" }, "Dead letters"), ...empty("No dead letters", [h("span", {}, "Messages that were rejected, expired or failed too often appear here.")])];
  return [h("h1", { key: "h1" }, "Dead letters"), data.rows.map((row) => drawDead(row, true)), data.total > data.rows.length && h("p", { key: "more", class: "muted" }, `${whole.format(data.total - data.rows.length)} more queues have dead letters.`)];
}

// --- sessions and publishers ---

function drawSessions(data) {
  if (!data.total) return [h("h1", { key: "h1" }, "Sessions"), ...empty("No sessions", [h("span", {}, "A Spark query that reads from this broker opens one.")])];
  const queues = { label: "Queues", wide: true, cell: (row) => (row.queue_pattern ? [h("code", {}, named(row.queue_pattern)), ` (${whole.format(row.queue_count)})`] : list(row.queues.map((name) => link("queue", name)), row.queue_count)) };
  return [panel("Sessions", filterBox("Filter by session or queue"),
    data.rows.length ? table("Sessions, the oldest lease first", sessionColumns([queues]), data.rows, { key: (row) => row.session }) : h("p", { class: "note" }, "No session matches."),
    pager(data))];
}

function linkState(row) {
  if (!row.live) return badge("warn", "absent", "No process runs the link");
  if (row.paused) return badge("", "paused", "An operator paused the link");
  return row.refusal ? badge("bad", "refused", "The broker refuses messages of the link") : badge("ok", "live");
}

function drawLinks(data) {
  if (!data.total) return [h("h1", { key: "h1" }, "Links"), ...empty("No links", [h("span", {}, "A link brings messages from a queue of a remote broker:"), h("pre", {}, "ackq-broker link --help")])];
  return [panel("Links", filterBox("Filter by link, source or queue"), data.rows.length ? table("Links, the oldest held message first", [
    { label: "Link", wide: true, class: "name-cell", cell: (row) => [link("link", row.link, clamped(row.link)), " ", linkState(row), " ", row.report?.set_aside > 0 && badge("bad", "set aside", visible(row.report.set_aside_reason))] },
    { label: "Source", wide: true, class: "id", cell: (row) => clamped(row.source) },
    { label: "Queue", wide: true, class: "name-cell", cell: (row) => link("queue", row.queue, clamped(row.queue)) },
    { label: "Held", n: true, cell: (row) => count(row.held), title: "In the queue, and not acknowledged at the remote broker" },
    { label: "Oldest", n: true, cell: (row) => age(row.held_oldest_age_ms), title: "Age of the oldest held message" },
    { label: "In doubt", n: true, cell: (row) => count(row.in_doubt), title: "Unproven acknowledgements of broken connections" },
    { label: "Taken", n: true, cell: (row) => count(row.taken) },
    { label: "Run by", wide: true, cell: (row) => (row.holder ? [named(row.holder.host), ` · process ${row.holder.pid}`] : h("span", { class: "zero" }, "nobody")) },
  ], data.rows, { key: (row) => row.link }) : h("p", { class: "note" }, "No link matches."), pager(data))];
}

/** A field of a link by its name, as `ackq link show` has it. */
function linkFact([name, value]) {
  const shown = typeof value === "boolean" ? (value ? "yes" : "no") : typeof value === "string" ? named(value || "–") : name === "pid" ? String(value)
    : name.endsWith("_ms") ? age(value) : name.endsWith("_us") ? time(value) : count(value);
  return h("div", { key: name }, h("dt", {}, name.replace(/_(ms|us)$/, "").replaceAll("_", " ")), h("dd", {}, shown));
}

function drawLink(data) {
  const { name } = state.route;
  const [row] = data.rows;
  const title = [h("p", { class: "crumbs" }, h("a", { href: "#/links" }, "Links"), " /"), h("div", { class: "title" }, h("h1", {}, named(name)), row && linkState(row))];
  if (!row) return [h("div", { key: "title" }, title), empty("This link does not exist", [])];
  const { holder, report, held_up, ...fields } = row;
  const facts = (label, of) => panel(label, null, of ? h("dl", { class: "facts" }, Object.entries(of).map(linkFact)) : h("p", { class: "note" }, "No process runs the link."));
  return [h("div", { key: "title" }, title),
    panel("What holds the link up", null, held_up.length ? held_up.map((each) => h("p", { key: each, class: "note" }, h("bdi", {}, visible(each)))) : h("p", { class: "note" }, "Nothing holds the link up.")),
    facts("The link", fields), h("div", { key: "two", class: "two" }, facts("Last report", report), facts("Run by", holder))];
}

function drawPublishers(data) {
  const head = [badge("", plural(data.total, "stream")), data.total > data.rows.length && h("span", { class: "muted" }, `the ${data.rows.length} oldest are shown`)];
  if (!data.total) return [h("h1", { key: "h1" }, "Publishers"), ...empty("No publisher is connected", [])];
  return [panel("Publishers", head, table("Publishers that are connected", [
    { label: "Publisher", wide: true, class: "name-cell", cell: (row) => [row.label ? named(row.label) : h("span", { class: "id" }, row.publisher), " ", row.blocked && badge("bad", "blocked")] },
    { label: "Mode", cell: (row) => (row.transactional ? "transaction" : "confirm") },
    { label: "Connected for", n: true, cell: (row) => age(row.age_ms) },
    { label: "Unsent answers", n: true, cell: (row) => count(row.unsent_answers), title: "Answers that wait for the disk, or for the client" },
    { label: "Block reason", wide: true, cell: (row) => (row.blocked ? visible(row.blocked) : h("span", { class: "zero" }, "not blocked")) },
  ], data.rows, { key: (row) => row.publisher }))];
}

// --- peek ---

function drawPeek(data) {
  const { name, query } = state.route;
  const here = encodeURIComponent(name);
  const last = data.rows.at(-1)?.position ?? 0;
  const reload = () => { Object.assign(state, { data: null, peeked: new Map() }); poll(); };
  return [
    h("div", { key: "title" },
      h("p", { class: "crumbs" }, h("a", { href: "#/queues" }, "Queues"), " / ", link("queue", name), " /"),
      h("div", { class: "title" }, h("h1", {}, "Peek"), h("span", { class: "muted" }, "Peeking takes no message out of the queue."),
        h("div", { class: "actions" },
          Number(query.get("from")) > 0 && h("a", { key: "head", class: "button", href: `#/peek/${here}` }, "From the head"),
          h("button", { key: "reload", onclick: reload }, "Reload"),
          data.more && h("a", { key: "next", class: "button", id: "peek-on", href: `#/peek/${here}?from=${last + 1}` }, "Next")))),
    data.rows.length ? h("section", { key: "messages", class: "panel", "aria-label": "Messages" }, data.rows.map(drawMessage))
      : h("div", { key: "none", class: "panel empty" }, h("strong", {}, Number(query.get("from")) > 0 ? "No more messages" : "No messages")),
  ];
}

function header(row, wanted) {
  return row.headers.find(([name]) => name === wanted)?.[1];
}

function drawMessage(row) {
  const opened = state.peeked.get(row.position);
  const cause = header(row, "ackq-dead-cause");
  const now = state.broker ? state.broker.taken_us : Date.now() * 1000;
  const meta = [
    row.leased && badge("warn", "unacked"), " ",
    row.delivery_count > 1 && badge("", `delivery ${row.delivery_count}`), " ",
    cause && badge("bad", CAUSES[cause] ?? visible(cause)), " ",
    row.body_bytes < 1024 ? plural(row.body_bytes, "byte") : bytes(row.body_bytes), row.published_at_us ? [" · ", duration(Math.max(0, now - row.published_at_us) / 1000), " old"] : "",
  ];
  const toggle = (event) => {
    if (event.target.open === state.peeked.has(row.position)) return;
    if (event.target.open) state.peeked.set(row.position, { kind: "" });
    else state.peeked.delete(row.position);
    draw();
  };
  return h("details", { key: row.position, class: "message", ontoggle: toggle },
    h("summary", {}, h("span", { class: "place", title: "Position in the queue" }, `#${row.position}`), h("span", { class: "preview" }, h("bdi", {}, preview(row))), h("span", { class: "meta" }, meta)),
    opened && drawOpened(row, opened));
}

function drawOpened(row, opened) {
  const facts = [
    ["Published", time(row.published_at_us)],
    ["Expires", row.expires_at_us ? time(row.expires_at_us) : "never"],
    ["Delivery mode", row.persistent ? "persistent" : "transient"],
    ["Routing key", row.routing_key],
    ["Message id", row.message_id],
    ["Correlation id", row.correlation_id],
    ["Reply to", row.reply_to],
    ["Content type", row.content_type],
  ].filter(([, value]) => value);
  return h("div", { class: "inside" },
    h("dl", { class: "facts" }, facts.map(([label, value]) => h("div", { key: label }, h("dt", {}, label), h("dd", {}, named(value))))),
    row.headers.length > 0 && h("div", { class: "scroll" }, h("table", {}, h("caption", { class: "hidden" }, "Headers"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Header"), h("th", { scope: "col" }, row.header_count > row.headers.length ? `Value (${row.headers.length} of ${row.header_count})` : "Value"))),
      h("tbody", {}, row.headers.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, named(name)), h("td", {}, named(value))))))),
    drawBody(row, opened));
}

function decoded(row) {
  if (row.decoded) return row.decoded;
  const data = Uint8Array.from(atob(row.body), (each) => each.charCodeAt(0));
  const cut = data.length < row.body_bytes;
  const found = { data, cut, kinds: ["hex"], text: null };
  try {
    // The cut may go through a character, which is left out.
    found.text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data, { stream: cut });
    found.kinds = ["text", "hex"];
    // eslint-disable-next-line no-control-regex
    if (/[\u0000-\u0008\u000e-\u001f]/.test(found.text)) found.kinds = ["hex", "text"];
    if (!cut && /^\s*[[{]/.test(found.text)) {
      JSON.parse(found.text);
      found.kinds = ["json", "text", "hex"];
    }
  } catch {
    // Neither text nor JSON: shown as what it is.
  }
  row.decoded = found;
  return found;
}

function preview(row) {
  const { data, text, kinds } = decoded(row);
  if (!data.length) return "(empty)";
  if (text === null || kinds[0] === "hex") return [...data.slice(0, 24)].map((each) => each.toString(16).padStart(2, "0")).join(" ");
  return visible(text.slice(0, 300).replace(/\s+/g, " "));
}

function drawBody(row, opened) {
  const { data, cut, kinds, text } = decoded(row);
  if (!row.body_bytes) return h("p", { class: "muted" }, "The body is empty.");
  const kind = opened.kind || kinds[0];
  const label = { json: "JSON", text: "Text", hex: "Hex" };
  const shown = { json: () => highlighted(text), text: () => [text.replace(/[^\t\n]+/g, visible)], hex: () => [hexdump(data)] };
  return h("div", { class: "body" },
    h("div", { class: "kinds", role: "group", "aria-label": "Show the body as" },
      kinds.map((each) => h("button", { key: each, "aria-pressed": String(each === kind), onclick: () => { opened.kind = each; draw(); } }, label[each])),
      cut && h("span", { key: "cut" }, ` the first ${bytes(data.length)} of ${bytes(row.body_bytes)}`)),
    h("pre", { key: kind, class: kind, tabindex: 0, "aria-label": `Body as ${label[kind]}` }, kind === "json" ? shown.json() : shown[kind]()));
}

/** JSON, indented; every string and number stands as it came, which parsing would not keep. */
function highlighted(text) {
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  const parts = [];
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  tokens.forEach((token, at) => {
    const next = tokens[at + 1];
    if (token === "{" || token === "[") {
      const closed = next === "}" || next === "]";
      if (!closed) depth += 1;
      parts.push(closed ? token : token + line());
    } else if (token === "}" || token === "]") {
      const opened = tokens[at - 1] === "{" || tokens[at - 1] === "[";
      if (!opened) depth -= 1;
      parts.push(opened ? token : line() + token);
    } else if (token === ",") parts.push(token + line());
    else if (token === ":") parts.push(": ");
    else parts.push(h("span", { class: next === ":" ? "json-key" : token[0] === '"' ? "json-text" : "json-value" }, visible(token)));
  });
  return parts;
}

function hexdump(data) {
  const width = matchMedia("(max-width: 760px)").matches ? 8 : 16;
  const lines = [];
  for (let at = 0; at < Math.min(data.length, 4096); at += width) {
    const row = [...data.slice(at, at + width)];
    const hex = row.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(3 * width - 1);
    lines.push(`${at.toString(16).padStart(4, "0")}  ${hex}  ${row.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : "·")).join("")}`);
  }
  if (data.length > 4096) lines.push("…");
  return lines.join("\n");
}

// --- dialogs ---

function openDialog(dialog) {
  state.dialog = { refusal: "", busy: false, ...dialog };
  drawDialog();
  const node = document.getElementById("dialog");
  if (!node.open) node.showModal();
  node.querySelector("input, [autofocus]")?.focus();
}

function closeDialog() {
  state.dialog = null;
  const node = document.getElementById("dialog");
  if (node.open) node.close();
  patch(node, []);
}

function drawDialog() {
  const { dialog } = state;
  if (!dialog) return;
  const submit = (event) => {
    event.preventDefault();
    if (!dialog.busy && ready(dialog)) act(dialog);
  };
  patch(document.getElementById("dialog"), h("form", { key: dialog.title, onsubmit: submit, autocomplete: "off" },
    h("h2", { id: "dialog-title" }, dialog.heading),
    dialog.body(dialog),
    h("div", { key: "refusal", class: dialog.refusal ? "refusal" : undefined, role: "alert" }, visible(dialog.refusal)),
    h("div", { key: "buttons", class: "buttons" },
      h("button", { key: "cancel", type: "button", id: "cancel", onclick: closeDialog }, dialog.act ? "Cancel" : "Close"),
      dialog.act && h("button", { key: "do", type: "submit", id: "confirm", class: `primary ${dialog.danger ? "danger" : ""}`, disabled: dialog.busy || !ready(dialog) || Boolean(state.gone) }, dialog.busy ? "Working…" : dialog.button))));
}

const ready = (dialog) => !dialog.ready || dialog.ready(dialog);

/** Does what a dialog is about; what the broker refuses is said in it, and it stays. */
async function act(dialog) {
  Object.assign(dialog, { busy: true, refusal: "" });
  drawDialog();
  let said = "";
  try {
    said = await dialog.act(dialog);
  } catch (error) {
    dialog.refusal = error instanceof Refusal ? error.message : "The broker did not answer: check the queue before you try again.";
  }
  dialog.busy = false;
  if (state.dialog !== dialog) {
    if (dialog.refusal) toast(dialog.refusal);
  } else if (dialog.refusal) drawDialog();
  else closeDialog();
  if (said) toast(said);
  if (state.route.view === "peek") state.data = null;
  poll();
}

function typed(name) {
  return (event) => { state.dialog[name] = event.target.type === "checkbox" ? event.target.checked : event.target.value; drawDialog(); };
}

function confirmPurge(queue) {
  openDialog({
    title: `purge ${queue.queue}`,
    heading: ["Purge ", named(queue.queue), "?"],
    danger: true,
    button: ["Purge ", named(queue.queue)],
    typed: "",
    ready: (dialog) => dialog.typed === queue.queue,
    body: () => [
      h("p", {}, `This removes the ${plural(queue.ready, "ready message")} for good. `, queue.unacked || queue.delayed ? `${plural(queue.unacked + queue.delayed, "unacked or delayed message")} ${queue.unacked + queue.delayed === 1 ? "stays" : "stay"}.` : ""),
      h("label", { class: "field" }, h("span", {}, "Type the queue's name to confirm"), h("input", { id: "typed", value: state.dialog?.typed ?? "", placeholder: queue.queue, oninput: typed("typed"), autocomplete: "off", autocapitalize: "off", spellcheck: "false" })),
    ],
    act: async (dialog) => `Purged ${plural((await ask("api/purge", { queue: queue.queue, confirm: dialog.typed })).purged, "message")} of ${queue.queue}.`,
  });
}

function confirmRedrive({ queue, messages, reasons }) {
  const text = (id, label, more) => h("label", { key: id, class: "field" }, h("span", {}, label), h("input", { id, value: state.dialog[id], oninput: typed(id), autocomplete: "off", autocapitalize: "off", spellcheck: "false", ...more }));
  openDialog({
    title: `redrive ${queue}`,
    heading: ["Redrive ", named(queue), "?"],
    button: ["Redrive ", named(queue)],
    cause: "",
    reason: "",
    to: "",
    most: "",
    ready: (dialog) => /^\d*$/.test(dialog.most) && dialog.most !== "0",
    body: (dialog) => [
      h("p", {}, dialog.cause || dialog.reason ? "This moves the dead letters" : `This moves ${plural(messages, "dead letter")}`, dialog.cause && [" of the cause ", CAUSES[dialog.cause]], dialog.reason && [" with exactly this reason"],
        dialog.to ? [" to ", named(dialog.to)] : " back to the queues they came from", ", the oldest first. Messages that find no room in the target queue stay."),
      h("label", { class: "field" }, h("span", {}, "Only with this cause"), h("select", { id: "cause", value: dialog.cause, onchange: typed("cause") }, [["", "any cause"], ...Object.entries(CAUSES)].map(([value, label]) => h("option", { key: value, value }, label)))),
      text("reason", "Only with this reason (empty: any)", { list: "reasons" }),
      h("datalist", { key: "reasons", id: "reasons" }, [...new Set(reasons.map((row) => row.reason))].map((value) => h("option", { key: value, value }))),
      text("to", "To this queue (empty: the queues they came from)"),
      text("most", "At most this many messages (empty: all)", { inputmode: "numeric" }),
      dialog.moved > 0 && h("p", { key: "moved", role: "status" }, `${plural(dialog.moved, "message")} moved so far.`),
    ],
    act: async (dialog) => {
      let [moved, last] = [0, 0];
      const { cause, reason, to } = dialog;
      const most = Number(dialog.most) || 0;
      for (;;) {
        const done = await ask("api/redrive", { queue, cause, reason, to_queue: to, last_position: last, max_messages: most && most - moved });
        moved += done.messages;
        last = done.last_position;
        dialog.moved = moved;
        if (!done.more || (most && moved >= most) || state.dialog !== dialog) return `Redrove ${plural(moved, "message")} of ${queue}${to ? ` to ${to}` : ""}${done.left ? `; ${whole.format(done.left)} stay` : ""}.`;
        drawDialog();
      }
    },
  });
}

function confirmRelease(row) {
  openDialog({
    title: `release ${row.session}`,
    heading: ["Release ", named(row.session), "?"],
    danger: true,
    button: ["Release ", named(row.session)],
    fence: false,
    ready: (dialog) => !row.live || dialog.fence,
    body: () => [
      h("p", {}, `This puts the ${plural(row.all ?? row.leased, "message")} of its lease back into the queues for other readers. The session ends: `,
        "the query with its checkpoint is refused when it starts again, and messages that it has already processed are processed again."),
      row.query_id && h("p", { class: "muted" }, "Read by query ", named(row.query_id), `, batch ${row.batch_id}.`),
      row.live && h("label", { key: "fence", class: "check" }, h("input", { id: "fence", type: "checkbox", onchange: typed("fence") }),
        h("span", {}, "A live reader holds it", row.holder && [", process ", String(row.holder.pid), " on ", named(row.holder.host)], ". End that query too.")),
    ],
    act: async (dialog) => {
      const done = await ask("api/release", { session: row.session, fence: dialog.fence });
      return `Released ${plural(done.released, "message")} of ${row.session}${done.dropped ? `; ${whole.format(done.dropped)} were dropped with their deleted queue` : ""}.`;
    },
  });
}

function signIn(refusal) {
  if (state.dialog?.title === "sign in") return;
  openDialog({
    title: "sign in",
    heading: "Sign in",
    button: "Sign in",
    token: "",
    refusal,
    ready: (dialog) => dialog.token.trim() !== "",
    body: () => [
      h("p", {}, "This broker identifies its users by tokens. Your token is kept only in this tab, until you close it or sign out."),
      h("label", { class: "field" }, h("span", {}, "Token"), h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", oninput: typed("token") })),
    ],
    act: async (dialog) => {
      const before = state.token;
      state.token = dialog.token.trim();
      try {
        await ask("api/broker");
      } catch (error) {
        // Refused for another reason than the token: who it is is known.
        if (!(error instanceof Refusal && error.status === 403)) {
          state.token = before;
          throw error;
        }
      }
      samples.clear();
      sessionStorage.setItem(TOKEN_KEY, state.token);
      state.refusal = null;
      return "";
    },
  });
}

function signOut() {
  sessionStorage.removeItem(TOKEN_KEY);
  Object.assign(state, { token: "", data: null, broker: null });
  poll();
}

const KEYS = [
  [["/"], "Filter"], [["j", "k"], "Next and previous row"], [["Enter"], "Open the row"], [["[", "]"], "Previous and next page"],
  [["g", "q"], "Queues"], [["g", "s"], "Sessions"], [["g", "l"], "Links"], [["g", "d"], "Dead letters"], [["g", "p"], "Publishers"],
  [["p"], "Peek into this queue"], [["r"], "Update now"], [["Esc"], "Close; back to the queue, or to the list"], [["?"], "This list"],
];

function showKeys() {
  openDialog({
    title: "keys",
    heading: "Keyboard shortcuts",
    body: () => h("dl", { class: "keys" }, KEYS.map(([keys, what]) => [h("dt", {}, keys.map((key, at) => [at ? " " : "", h("kbd", {}, key)])), h("dd", {}, what)])),
  });
}

// --- keys ---

let prefix = 0;

function move(step) {
  const rows = [...document.querySelectorAll("#main tbody a, #main tbody button.small, #main summary")].filter((each, at, all) => each.tagName === "SUMMARY" || all.findIndex((other) => other.closest("tr") === each.closest("tr")) === at);
  if (!rows.length) return;
  const at = rows.findIndex((each) => (each.closest("tr") ?? each).contains(document.activeElement));
  const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1);
  rows[next].focus();
  rows[next].scrollIntoView({ block: "nearest" });
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || state.dialog) return;
  const { target, key } = event;
  const inField = target.matches("input, select, textarea");
  if (key === "Escape") {
    if (inField) target.blur();
    else if (state.route.view === "peek") location.hash = `#/queue/${encodeURIComponent(state.route.name)}`;
    else if (state.route.view === "queue" || state.route.view === "link") location.hash = `#/${state.route.view}s`;
    return;
  }
  if (inField) return;
  const after = Date.now() - prefix < 1200;
  prefix = 0;
  const goes = { q: "queues", s: "sessions", l: "links", d: "dead", p: "publishers" };
  const does = {
    "/": () => document.getElementById("filter")?.focus(),
    j: () => move(1),
    k: () => move(-1),
    "[": () => document.getElementById("page-back")?.click(),
    "]": () => document.getElementById("page-on")?.click(),
    g: () => { prefix = Date.now(); },
    p: () => document.getElementById("peek")?.click(),
    r: () => { if (VIEWS[state.route.view].once) state.data = null; poll(); },
    "?": showKeys,
  };
  if (after && goes[key]) {
    if (tabs().includes(goes[key])) location.hash = `#/${goes[key]}`;
  } else if (Object.hasOwn(does, key)) does[key]();
  else return;
  event.preventDefault();
}

addEventListener("hashchange", follow);
addEventListener("keydown", press);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  state.late = Date.now() - state.seen > 2 * POLL_MS;
  draw();
  poll();
});
document.getElementById("dialog").addEventListener("close", () => { if (state.dialog) closeDialog(); });
state.route = readRoute();
draw();
poll();
