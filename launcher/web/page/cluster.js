// The page of a cluster: hosts, the queue and detached jobs.

import { $, ask, count, element, live, why } from "./session.js";

function fill(id, rows, none) {
  if (!rows.length) rows = [element("tr")];
  if (!rows[0].children.length) rows[0].append(element("td", none, { colSpan: 5 }));
  $(id).replaceChildren(...rows);
}

function row(name, ...cells) {
  const r = element("tr");
  r.append(element("th", name, { scope: "row" }), ...cells.map((c) => (c instanceof Node ? c : element("td", c))));
  return r;
}

function used(member) {
  const cell = element("td");
  cell.append(element("meter", undefined, { max: Math.max(member.slots, 1), value: member.used, ariaHidden: "true" }), `${member.used} of ${member.slots}`);
  return cell;
}

const time = (seconds) => (seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);

function show({ members, jobs, detached }) {
  const sum = (key) => members.reduce((n, m) => n + m[key], 0);
  const waiting = jobs.filter((j) => j.state === "waiting").length;
  $("summary").textContent = `${count(members.length, "host")} · ${sum("used")} of ${count(sum("slots"), "slot")} in use · ${count(jobs.length - waiting, "job")} · ${waiting} waiting`;
  fill("hosts", members.map((m) => row(m.host, used(m), m.address, m.version, m.draining ? "takes no more jobs" : "takes jobs")), "no hosts");
  const order = jobs.toSorted((a, b) => (a.state === "running") - (b.state === "running")); // those that wait come first
  fill("queue", order.map((j) => {
    const hosts = j.hosts.map((h) => `${h.host}:${h.slots}`).join(", ");
    return row(j.program, hosts || element("td", "waits for slots", { className: "bad" }), j.ranks, j.user, time(j.seconds));
  }), "no job has slots, and none waits");
  fill("detached", detached.toReversed().map((d) => row(d.name || `${d.host}/${d.id}`, d.program, new Date(d.started).toLocaleString(), d.ranks,
    d.state === "ended" ? `ended with ${d.code}${d.why ? `: ${d.why}` : ""}` : d.state)), "none");
}

async function poll() {
  try {
    const view = await ask("/api/cluster");
    if (view.cluster) show(view.cluster);
    live(view.error ? "lost" : "live", view.error || "live");
  } catch (e) {
    live("lost", why(e));
  }
  setTimeout(poll, 2000);
}

poll();
