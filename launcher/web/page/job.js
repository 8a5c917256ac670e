// The live page of a job: it asks the launcher each second, and keeps ten minutes of what it learned.

import { PARTS, curve, lane, ring, strip } from "./draw.js";
import { $, ask, count, element, live, why } from "./session.js";

const KEPT = 10 * 60 * 1000; // of curves, in ms
const SPAN = 5000; // over which rates and shares are taken, in ms
const MOST = 200; // columns of the strip
const LINES = 5000; // of output that are kept
const MOST_LINES = 500; // that are shown
const DAY = 24 * 60 * 60 * 1000;
const BAD = new Set(["silent", "left", "stall"]);
const SLOW = 0.2; // share of the time in which data waits at the edge that sets the pace, at least
const WORDS = { computing: "computing", data: "waiting for data", communication: "communication", others: "waiting for other ranks" };

const views = []; // of the last seconds, to subtract from
const points = []; // of the curves
let chosen = 0; // column of the strip
let groups = [];

// Figures

const seconds = (us) => (us >= 1e6 ? `${(us / 1e6).toPrecision(3)} s` : us >= 1e3 ? `${(us / 1e3).toPrecision(3)} ms` : `${us} µs`);
const percent = (share) => `${Math.round(100 * share)} %`;

function bytes(n) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) n /= 1000;
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toPrecision(2)} ${units[i]}`;
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
}

// split returns where the time of a rank went between two views, in microseconds; null if that is not known.
function split(now, before) {
  if (!now) return null;
  const since = (key) => now[key] - (before && before.elapsed_us <= now.elapsed_us ? before[key] : 0);
  const elapsed = since("elapsed_us");
  if (elapsed <= 0) return null;
  const s = { data: since("data_us"), communication: since("communication_us"), others: since("others_us"),
    steps: since("steps"), elapsed };
  s.computing = Math.max(elapsed - s.data - s.communication - s.others, 0);
  return s;
}

// together returns the ranks as columns of the strip, several ranks in one where there are many.
function together(view, before) {
  const size = Math.ceil(view.ranks.length / MOST);
  const old = new Map(before.ranks.map((r) => [r.rank, r]));
  const all = [];
  for (let i = 0; i < view.ranks.length; i += size) {
    const ranks = view.ranks.slice(i, i + size);
    const sum = Object.fromEntries(PARTS.map((part) => [part, 0]));
    for (const r of ranks) {
      const s = split(r.split, old.get(r.rank)?.split);
      if (s) for (const part of PARTS) sum[part] += s[part];
    }
    const total = PARTS.reduce((n, part) => n + sum[part], 0);
    const shares = total ? Object.fromEntries(PARTS.map((part) => [part, sum[part] / total])) : null;
    all.push({ ranks, shares });
  }
  return all;
}

// What is shown

function showHead(view) {
  const { job } = view;
  document.title = `job ${job.id}: ${job.program}`;
  $("program").textContent = job.program || "gorun";
  const size = `${count(job.ranks, "rank")} on ${count(view.hosts.length, "host")}`;
  const began = new Date(job.started).toLocaleString();
  const epoch = Math.max(...view.hosts.map((h) => h.epoch), 0);
  $("summary").textContent = `job ${job.id} · ${size} · epoch ${epoch} · since ${began}`;
}

function showFigures(point, view) {
  const sum = groups.filter((g) => g.shares);
  const mean = (part) => sum.reduce((n, g) => n + g.shares[part] * g.ranks.length, 0) / sum.reduce((n, g) => n + g.ranks.length, 0);
  const figures = [
    ["last step (median)", point.step === null ? "–" : seconds(point.step)],
    ["steps", point.rate === null ? "–" : `${point.rate.toPrecision(3)} /s`],
    ["hosts send", point.sent === null ? "–" : `${bytes(point.sent)}/s`],
    ["memory of ranks", bytes(view.ranks.reduce((n, r) => n + r.rss, 0))],
    ...PARTS.map((part) => [WORDS[part], sum.length ? percent(mean(part)) : "–"]),
  ];
  $("figures").replaceChildren(...figures.map(([name, value]) => {
    const d = element("div");
    d.append(element("dt", name), element("dd", value));
    return d;
  }));
}

function nameOf({ ranks }) {
  const last = ranks.at(-1);
  return ranks.length === 1 ? `rank ${last.rank} on ${last.host}` : `ranks ${ranks[0].rank}-${last.rank} on ${ranks[0].host}${last.host === ranks[0].host ? "" : ` to ${last.host}`}`;
}

function describe(group) {
  const { ranks, shares } = group;
  const parts = shares ? PARTS.map((part) => `${WORDS[part]} ${percent(shares[part])}`).join(", ") : "counts nothing";
  const steps = ranks.filter((r) => r.split?.step_us > 0).map((r) => r.split.step_us);
  const step = steps.length ? `; last step ${seconds(median(steps))}` : "";
  const one = ranks.length === 1 ? `; ${ranks[0].state}` : "";
  return `${nameOf(group)}: ${parts}${step}${one}`;
}

function showStrip() {
  chosen = Math.max(Math.min(chosen, groups.length - 1), 0);
  $("strip").replaceChildren(strip(groups, chosen));
  const text = groups.length ? describe(groups[chosen]) : "";
  if ($("chosen").textContent !== text) $("chosen").textContent = text;
}

function showCurves(view) {
  const to = points.at(-1).at, from = Math.min(points[0].at, to - 60000);
  const marks = view.events.filter((e) => e.kind !== "started").map((e) => Date.parse(e.at));
  const curves = [
    ["step", "last step (median)", seconds],
    ["rate", "steps a second", (v) => v.toPrecision(3)],
    ["sent", "sent by all hosts", (v) => `${bytes(v)}/s`],
  ];
  $("curves").replaceChildren(...curves.map(([key, name, write]) => {
    const values = points.map((p) => ({ at: p.at, value: p[key] }));
    const known = values.filter((p) => p.value !== null).map((p) => p.value);
    const text = known.length ? `${name}: ${write(known.at(-1))}, at most ${write(Math.max(...known))}` : `${name}: nothing yet`;
    const f = element("figure");
    f.append(element("figcaption", text), curve(values, marks, from, to, text));
    return f;
  }));
}

// inRing returns the hosts as the ring passes them; hosts that are in none are last.
function inRing(hosts) {
  const byName = new Map(hosts.map((h) => [h.name, h]));
  const order = [];
  for (const first of hosts) {
    for (let h = first.next ? first : null; h && byName.delete(h.name); h = byName.get(h.next)) order.push(h);
  }
  return [...order, ...byName.values()];
}

// numbers writes numbers in order, with ranges: "0-2,5".
function numbers(all) {
  const parts = [];
  for (const n of all.toSorted((a, b) => a - b)) {
    if (parts.length && parts.at(-1)[1] === n - 1) parts.at(-1)[1] = n;
    else parts.push([n, n]);
  }
  return parts.map(([from, to]) => (from === to ? from : `${from}-${to}`)).join(",");
}

function showHosts(view, before) {
  const on = Map.groupBy(view.ranks, (r) => r.host);
  const old = new Map(before.hosts.map((h) => [h.name, h]));
  const span = (Date.parse(view.now) - Date.parse(before.now)) / 1000;
  const rate = (h) => (span > 0 && old.has(h.name) ? Math.max(h.sent_bytes - old.get(h.name).sent_bytes, 0) / span : 0);
  const most = Math.max(...view.hosts.map(rate), 1);
  $("hosts").replaceChildren(...inRing(view.hosts).map((h) => {
    const row = element("tr");
    const sends = element("td");
    sends.append(element("meter", undefined, { max: most, value: rate(h), ariaHidden: "true" }), `${bytes(rate(h))}/s`);
    const since = view.job.silent?.[h.name];
    const silent = since ? `silent since ${new Date(since).toLocaleTimeString()}` : "";
    row.append(element("th", h.name, { scope: "row" }), element("td", numbers((on.get(h.name) ?? []).map((r) => r.rank))), element("td", h.next ? `→ ${h.next}` : "–"), sends,
      element("td", h.resent_bytes ? bytes(h.resent_bytes) : "–"), element("td", silent || "answers", { className: silent ? "bad" : "" }));
    return row;
  }));
}

// showRing draws the ring, and names the edge at which data waits longest for the network.
function showRing(view, before) {
  const old = new Map(before.hosts.map((h) => [h.name, h]));
  const span = (Date.parse(view.now) - Date.parse(before.now)) / 1000;
  const edges = inRing(view.hosts).filter((h) => h.next).map((h) => {
    const was = old.get(h.name) ?? h;
    const since = (key) => Math.max(h[key] - was[key], 0);
    const rate = span > 0 ? since("sent_bytes") / span : 0, busy = since("busy_us") / 1e6;
    return { from: h.name, to: h.next, rate, text: `${bytes(rate)}/s`, silent: Boolean(view.job.silent?.[h.name]),
      busy: span > 0 ? Math.min(busy / span, 1) : 0, path: busy > 0 ? since("busy_bytes") / busy : 0 };
  });
  if (edges.length < 2) {
    $("ring").replaceChildren();
    $("pace").textContent = "The job has no ring: it has one host, or the ring is not formed yet.";
    return;
  }
  let slowest = -1;
  edges.forEach((e, i) => { if (e.busy >= SLOW && (slowest < 0 || e.busy > edges[slowest].busy)) slowest = i; });
  const { from, to, busy, path } = edges[slowest] ?? {};
  const pace = slowest < 0 ? "No edge sets the pace: data waits for the network less than 20 % of the time." :
    `${from} → ${to} sets the pace: ${percent(busy)} of the time data waits for it, at ${bytes(path)}/s.`;
  $("ring").replaceChildren(ring(edges, slowest, `ring over ${count(edges.length, "host")}`, $("ring").clientWidth < 600));
  $("pace").textContent = pace;
  $("pace").className = slowest < 0 ? "" : "bad";
}

// LANES are the rows of the time line: which events begin a span, and which end it.
const LANES = [
  ["worlds", { epoch: "epoch" }, { epoch: "epoch" }],
  ["silence", { silent: "silent" }, { back: "silent", left: "silent" }],
  ["moves", { move: "move" }, { moved: "move" }],
  ["stalls", { stall: "stall" }, {}],
  ["hosts", { joined: "joined", left: "left", link: "link" }, {}],
  ["ranks", { started: "joined", ended: "left", stopping: "stall" }, {}],
];

// showLanes draws the events over time.
function showLanes({ events, now, job }) {
  const to = Date.parse(now), first = events.length ? Date.parse(events[0].at) : to;
  const from = Math.max(Math.min(first, to - 60000), Date.parse(job.started) || 0, to - DAY);
  $("lanes").replaceChildren(...LANES.flatMap(([name, begins, ends]) => {
    const spans = [];
    let open = [];
    for (const e of events) {
      const at = Date.parse(e.at), host = e.text.split(" ")[0];
      if (ends[e.kind]) {
        const closed = open.filter((s) => e.kind === "epoch" || s.host === host);
        for (const s of closed) s.end = at;
        open = open.filter((s) => !closed.includes(s));
      }
      if (begins[e.kind]) {
        const s = { begin: at, end: Object.keys(ends).length ? to : at, host, kind: begins[e.kind] };
        if (e.kind === "epoch" && spans.length % 2) s.kind = "epoch odd";
        spans.push(s);
        open.push(s);
      }
    }
    return [element("span", name), lane(spans, from, to, `${name}: ${count(spans.length, "event")}`)];
  }), element("span"), element("span", `${new Date(from).toLocaleTimeString()} to ${new Date(to).toLocaleTimeString()}`));
}

function showEvents({ events }) {
  $("events").replaceChildren(...events.toReversed().map((e) => {
    const item = element("li");
    item.append(element("time", new Date(e.at).toLocaleTimeString(), { dateTime: e.at }));
    item.append(element("span", e.text, { className: BAD.has(e.kind) ? "bad" : "" }));
    return item;
  }));
}

// take keeps a view, and shows it.
function take(view) {
  const at = Date.parse(view.now);
  if (views.length && at <= Date.parse(views.at(-1).now)) return; // the launcher has not answered since
  const before = views[0] ?? view;
  views.push(view);
  while (views.length > 1 && at - Date.parse(views[1].now) >= SPAN) views.shift();

  const span = (at - Date.parse(before.now)) / 1000;
  const steps = (v) => Math.max(...v.ranks.map((r) => r.split?.steps ?? -1), -1);
  const sent = (v) => v.hosts.reduce((n, h) => n + h.sent_bytes, 0);
  const lengths = view.ranks.filter((r) => r.split?.step_us > 0).map((r) => r.split.step_us);
  const point = {
    at,
    step: median(lengths),
    rate: span > 0 && steps(before) >= 0 ? Math.max(steps(view) - steps(before), 0) / span : null,
    sent: span > 0 ? Math.max(sent(view) - sent(before), 0) / span : null,
  };
  points.push(point);
  while (at - points[0].at > KEPT) points.shift();

  groups = together(view, before);
  showHead(view);
  showFigures(point, view);
  showStrip();
  showCurves(view);
  showRing(view, before);
  showHosts(view, before);
  showLanes(view);
  showEvents(view);
}

async function poll() {
  try {
    const view = await ask("/api/state");
    if (view.job) take(view);
    live(view.error ? "lost" : "live", view.error || (view.job?.stopped_by ? `stopped by ${view.job.stopped_by}` : "live"));
    if (!view.error) await showOutput();
  } catch (e) {
    live("lost", why(e));
  }
  setTimeout(poll, 1000);
}

async function askWhy() {
  const button = $("ask");
  button.disabled = true;
  $("answer").replaceChildren(element("p", "asking…"));
  try {
    const { verdict, evidence, stacks } = await ask("/api/why", "POST");
    const more = element("details");
    more.append(element("summary", "what each rank does"), element("pre", evidence.join("\n"), { tabIndex: 0 }));
    $("answer").replaceChildren(element("p", verdict), more, ...stacks.map(({ ranks, frames }) => {
      const stack = element("details", undefined, { open: stacks.length < 5 });
      stack.append(element("summary", `stack of ${/[-,]/.test(ranks) ? "ranks" : "rank"} ${ranks}`), element("pre", frames.join("\n"), { tabIndex: 0 }));
      return stack;
    }));
  } catch (e) {
    $("answer").replaceChildren(element("p", e.message, { className: "bad" }));
  }
  button.disabled = false;
}

// Output

const lines = []; // the latest
let next = -1; // number of the line to ask for
let shown = ""; // what the list shows

// wanted returns whether a line passes the filter. Ranks are written as 0,4-7.
function wanted() {
  const text = $("search").value.toLowerCase(), only = $("errors").checked;
  const of = $("of").value.split(",").map((part) => part.trim()).filter(Boolean)
    .map((part) => part.split("-").map(Number)).map(([low, high = low]) => [low, high]);
  return (l) => (!only || l.error) && (!text || l.text.toLowerCase().includes(text)) && (!of.length || of.some(([low, high]) => low <= l.rank && l.rank <= high));
}

async function showOutput() {
  for (let more = true; more;) {
    const answer = await ask(`/api/output?after=${next}`);
    more = answer.lines.length > 0 && answer.next > next && next >= 0;
    next = answer.next;
    lines.push(...answer.lines);
  }
  lines.splice(0, lines.length - LINES);
  drawOutput();
}

// drawOutput shows what passes the filter, and leaves it alone while it is scrolled up.
function drawOutput(changed = false) {
  const list = $("output"), found = lines.filter(wanted());
  const text = `${count(found.length, "line")} of the last ${lines.length}`;
  if ($("found").textContent !== text) $("found").textContent = text;
  const state = `${next} ${found.length}`, end = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  if (!changed && (state === shown || !end)) return;
  shown = state;
  list.replaceChildren(...found.slice(-MOST_LINES).map((l) => {
    const item = element("li");
    item.append(element("span", l.rank, { className: "rank" }), element("span", l.text, { className: l.error ? "bad" : "" }));
    return item;
  }));
  list.scrollTop = list.scrollHeight;
}

function choose(column) {
  chosen = column;
  showStrip();
}

$("strip").addEventListener("keydown", (e) => {
  const to = { ArrowLeft: chosen - 1, ArrowRight: chosen + 1, Home: 0, End: groups.length - 1, PageUp: chosen - 10, PageDown: chosen + 10 }[e.key];
  if (to === undefined) return;
  e.preventDefault();
  choose(to);
});
$("strip").addEventListener("click", (e) => {
  const box = $("strip").getBoundingClientRect();
  choose(Math.floor(((e.clientX - box.left) / box.width) * groups.length));
});
$("ask").addEventListener("click", askWhy);
$("filter").addEventListener("input", () => drawOutput(true));
$("filter").addEventListener("submit", (e) => e.preventDefault());
$("legend").replaceChildren(...PARTS.map((part) => element("li", WORDS[part], { className: part })));
poll();
