// Requests to the server. Its token is in the fragment of the address that gorun printed, which browsers send nowhere, and
// is kept for this tab and this port alone.

const KEY = "gorun token";

function take() {
  if (location.hash.length < 2) return false;
  sessionStorage.setItem(KEY, location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
  return true;
}

take();
addEventListener("hashchange", () => take() && location.reload());

export async function ask(path, method = "GET") {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  const answer = await fetch(path, { method, headers, signal: AbortSignal.timeout(method === "GET" ? 10000 : 20000) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

export const why = (e) => (e instanceof TypeError ? "gorun is gone: what it showed has ended, or the tunnel to it" : e.message);

export const $ = (id) => document.getElementById(id);

export function element(name, text, properties = {}) {
  const e = Object.assign(document.createElement(name), properties);
  if (text !== undefined) e.textContent = text;
  return e;
}

export const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

export function live(state, text) {
  const e = $("live");
  e.dataset.state = state;
  if (e.textContent !== text) e.textContent = text;
}
