// Where we are (the address), the keyboard, the theme, and newer values.

const REFRESH = 15000;
const view = document.getElementById("view");
let data = JSON.parse(document.getElementById("data").textContent);
let offset = null; // of the server's clock
let texts = new WeakMap();
let lost = null;
const kept = new Map();
const RANK = new Map([...data.states, OTHER].map((state, index) => [state, index]));

// A file shows how things were when it was written; a live page goes on.
function now() {
  if (!data.live) return time(data.as_of);
  return Math.max(time(data.as_of), offset === null ? 0 : performance.now() + offset);
}

const address = () => new URLSearchParams(location.hash.slice(1));

const keepFilter = () => {
  const parts = new URLSearchParams();
  for (const [key, value] of [["q", list.query], ["state", list.state], ["cause", list.cause], ["sort", list.sort], ["down", list.down ? "1" : ""]]) {
    if (value) parts.set(key, value);
  }
  listHash = `#${parts}`;
  history.replaceState(null, "", listHash);
};

const detailsOf = async (what, name) => {
  const embedded = (what === "table" ? data.table_details : data.run_details) || {};
  if (Object.hasOwn(embedded, name)) return embedded[name];
  if (!data.live) return null;
  const key = `${what} ${name} ${data.as_of}`;
  if (!kept.has(key)) {
    kept.clear();
    const parameter = what === "table" ? "name" : "id";
    const answer = await fetch(`${what}.json?${parameter}=${encodeURIComponent(name)}`).catch(() => null);
    if (!answer || (!answer.ok && answer.status !== 404)) return { problem: "the server does not answer" };
    kept.set(key, answer.ok ? await answer.json() : null);
  }
  return kept.get(key);
};

// Show what is known while details are fetched, unless the same view is only brought up to date.
const STALE = Symbol("another view was opened meanwhile");
const loaded = async (what, name, top) => {
  const asked = place;
  if (view.dataset.shown !== place) show(top(), el("p", { class: "quiet" }, "Loading…"));
  const details = await detailsOf(what, name);
  return asked === place ? details : STALE;
};

const route = () => {
  const parts = address();
  const runs = parts.has("runs") || parts.has("run");
  for (const [id, current] of [["nav-tables", !runs], ["nav-runs", runs]]) {
    const link = document.getElementById(id);
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  list.left = parts.has("table") ? parts.get("table") : onList() ? "" : list.left;
  place = ["table", "run"].map((what) => (parts.has(what) ? `${what} ${parts.get(what)}` : "")).join("") || (runs ? "runs" : "list");
  if (parts.has("table")) return showTable(parts.get("table"));
  if (parts.has("run")) return showRun(parts.get("run"));
  if (parts.has("runs")) return showRuns();
  list.query = parts.get("q") || "";
  list.state = parts.get("state") || "";
  list.cause = parts.get("cause") || "";
  list.sort = parts.get("sort") || "";
  list.down = parts.has("down");
  listHash = location.hash;
  return showList();
};
const onList = () => list.rows && list.rows.isConnected;
let lastScroll = 0;
let listHash = "";
let runsHash = "#runs"; // with its filter
const follow = () => {
  const leaving = onList();
  if (leaving) list.scroll = location.hash.slice(1) ? lastScroll : 0;
  unfolded.clear();
  if (!leaving && !location.hash.slice(1)) history.replaceState(null, "", listHash || "#");
  route();
  if (!onList()) scrollTo(0, 0);
};

const showAge = () => {
  const place = document.getElementById("asof");
  const age = Date.now() - time(data.as_of);
  const text = `${stamp(data.as_of)} UTC`;
  place.textContent = data.live ? `live, as of ${text}` : `as of ${text}${age > 120000 ? `, ${brief(age)} ago` : ""}`;
  place.classList.toggle("old", !data.live && age > 3600000);
  const alarm = document.getElementById("alarm");
  const problem = lost ? `No answer from the server for ${brief(performance.now() - lost)}. What you see is from ${text}.` : data.problem;
  alarm.hidden = !problem;
  if (problem && alarm.textContent !== problem) alarm.textContent = problem;
};

const showFoot = () => {
  const keys = [["/", "filter"], ["j", null], ["k", "move"], ["Enter", "open"], ["Esc", "back"]];
  document.getElementById("foot").replaceChildren(
    el("div", null, keys.map(([key, text]) => [el("kbd", null, key), text ? ` ${text}   ` : " "])),
    el("div", null, `Floodmark ${data.program}, lake ${data.lake}. All times are UTC. A dash means never or not known.`,
      data.live ? "" : ` This file has details of ${number(Object.keys(data.table_details).length)} of ${number(data.tables.length)} tables`
        + ` and ${number(Object.keys(data.run_details).length)} of the last ${number(data.runs.length)} runs.`));
};

const refresh = async () => {
  if (document.hidden) return;
  try {
    const seen = data.problem ? "" : `?seen=${encodeURIComponent(data.as_of)}`;
    const answer = await fetch(`status.json${seen}`, { signal: AbortSignal.timeout(60000) });
    if (!answer.ok) throw new Error(answer.status);
    offset = time(answer.headers.get("date")) - performance.now();
    const found = answer.status === 204 ? null : await answer.json();
    lost = null;
    if (found && (found.as_of !== data.as_of || found.problem !== data.problem)) {
      data = { ...found, live: true };
      texts = new WeakMap();
    }
    route(); // also the ages go on
  } catch {
    lost = lost || performance.now();
  }
  showAge();
};

const themes = ["auto", "light", "dark"];
const setTheme = (name) => {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = `Theme: ${name}`;
  try { localStorage.setItem("floodmark-theme", name); } catch { /* a file may have no storage */ }
};
let theme = "auto";
try { theme = themes.includes(localStorage.getItem("floodmark-theme")) ? localStorage.getItem("floodmark-theme") : "auto"; } catch { /* as above */ }
document.getElementById("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  setTheme(theme);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
  const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 };
  if (!typing) Object.assign(moves, { j: 1, k: -1 });
  if (event.key === "Escape") {
    if (!onList()) location.hash = address().has("run") ? runsHash : "#";
    else if (typing && !list.query) event.target.blur();
    else { [list.query, list.state, list.cause, list.at] = ["", "", "", 0]; keepFilter(); route(); }
  } else if (event.key === "/" && !typing) {
    if (!onList()) {
      history.pushState(null, "", listHash || "#");
      route();
    }
    document.getElementById("filter").focus();
  } else if (onList() && event.key in moves && event.target.tagName !== "SELECT") {
    const inRows = list.rows.contains(document.activeElement);
    moveTo(inRows ? list.at + moves[event.key] : list.at);
  } else if (onList() && event.key === "Enter" && event.target.id === "filter" && list.shown.length) {
    location.hash = linkTo("table", list.shown[list.at].table_name);
  } else return;
  event.preventDefault();
});

let waiting = false;
addEventListener("scroll", () => {
  if (onList()) lastScroll = scrollY;
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; drawRows(); });
}, { passive: true });
addEventListener("resize", () => drawRows());
for (const [event, printed] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => { list.printed = printed; drawRows(); });
}
addEventListener("hashchange", follow);
addEventListener("visibilitychange", () => { if (data.live && !document.hidden) refresh(); });

setTheme(theme);
showFoot();
showAge();
route();
setInterval(showAge, 5000);
if (data.live) {
  refresh();
  setInterval(refresh, REFRESH);
}
