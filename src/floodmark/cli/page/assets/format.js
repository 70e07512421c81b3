// Values become text nodes and attributes, never markup.

const SIGNS = {
  "failing": "✕", "differs": "≠", "held back": "‖", "behind": "…", "never synced": "○", "in step": "✓",
  "failed": "✕", "partial": "✕", "did not finish": "✕", "busy": "‖", "interrupted": "‖", "held_back": "‖",
  "not configured": "–", "success": "✓", "running": "▸", "in_progress": "▸", "pending": "○",
};
const STAGES = [["extract", "seconds"], ["load", "load_seconds"], ["verify", "verify_seconds"]];
const NUMBER = new Intl.NumberFormat("en-US");

const element = (made, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made[name] = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return made;
};
const el = (tag, attributes, ...children) =>
  element(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  element(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// The first rows of a long table, and a button for the others, until another view is opened.
const unfolded = new Set();
const folded = (key, rows, most) => {
  const rest = unfolded.has(key) ? [] : rows.slice(most);
  rest.forEach((row) => { row.hidden = true; });
  const button = rest.length ? el("button", { type: "button", class: "more", onclick: () => {
    unfolded.add(key);
    route();
  } }, `Show ${NUMBER.format(rest.length)} more`) : null;
  return [rows, button];
};

const time = (text) => (text ? Date.parse(text) : null);
const number = (value) => (value === undefined || value === null ? "unknown" : NUMBER.format(value));

const brief = (milliseconds) => {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
};
const took = (seconds) => {
  if (seconds === undefined || seconds === null) return "";
  if (seconds > 0 && seconds < .05) return "< 0.1 s";
  return seconds < 60 ? `${seconds.toFixed(1)} s` : brief(seconds * 1000);
};
const size = (bytes) => {
  if (!bytes) return "";
  const units = ["kB", "MB", "GB", "TB"];
  let value = bytes / 1000;
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${value < 10 ? value.toFixed(1) : NUMBER.format(Math.round(value))} ${units[at]}`;
};
const short = (value) => {
  if (value < 10000) return NUMBER.format(value);
  return value < 1e6 ? `${Math.round(value / 1e3)} k` : `${(value / 1e6).toFixed(value < 1e7 ? 1 : 0)} M`;
};

// All times are UTC, as in the commands' output.
const stamp = (text) => (text ? new Date(text).toISOString().slice(0, 19).replace("T", " ") : "unknown");
// A position of time and id takes two lines.
const positionOf = (text) => {
  if (!text) return text;
  const [moment, ...id] = text.split(/, (?=id )/);
  const parts = moment.replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "").split(" ");
  return el("span", { class: "position", title: text }, parts.map((part) => [el("span", null, part), " "]),
    id.length ? [el("br"), id.join(", ")] : null);
};
// A phone has no room for seconds.
const started = (text) => [stamp(text).slice(0, 16), el("span", { class: "spare" }, stamp(text).slice(16))];
const clock = (moment) => new Date(moment).toISOString().slice(11, 19);
const when = (text) => {
  if (!text) return "never";
  return el("time", { datetime: text, title: `${stamp(text)} UTC` }, `${brief(now() - time(text))} ago`);
};

const kind = (state) => state.replaceAll(" ", "_");
const stateOf = (state, more) =>
  el("span", { class: `state ${kind(state)}`, "data-sign": SIGNS[state] || "•" },
    state.replaceAll("_", " "), more || null);

// A quoted command in a hint can be copied, if a shell takes each of its characters as it is.
const COMMAND = /^floodmark(?: (?:[\w.:,=@%+/-]+|"[\w :.+-]+"))+$/;
const copy = async (event) => {
  const button = event.currentTarget;
  try {
    await navigator.clipboard.writeText(button.previousSibling.textContent);
  } catch { // a page without TLS may not
    getSelection().selectAllChildren(button.previousSibling);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
};
const hintOf = (text) => (text ? el("p", { class: "hint" }, "hint: ", text.split(/'([^']*)'/).map((part, index) => {
  if (index % 2 === 0) return part;
  return !COMMAND.test(part) ? `'${part}'`
    : el("span", { class: "command" }, el("code", null, part), el("button", { type: "button", class: "copy", onclick: copy }, "Copy"));
})) : null);

const nameOf = (table) => {
  const at = table.indexOf(":");
  return [el("span", { class: "scope" }, table.slice(0, at + 1)), table.slice(at + 1)];
};
// In a narrow column the middle of a name is left out: names often differ at their end only.
const TAIL = 8;
const shortenedName = (table) => {
  const [scope, name] = nameOf(table);
  if (name.length <= 2 * TAIL) return [scope, name];
  return [el("span", { class: "begin" }, scope, name.slice(0, -TAIL)), name.slice(-TAIL)];
};
const linkTo = (key, value) => `#${key}=${encodeURIComponent(value)}`;
const tableLink = (name) => el("a", { href: linkTo("table", name) }, nameOf(name));
const runLink = (id, text) => el("a", { href: linkTo("run", id) }, text || id);

const definitions = (pairs) => el("dl", null, pairs
  .filter(([, value]) => value !== undefined && value !== null && value !== "")
  .map(([name, value]) => [el("dt", null, name), el("dd", null, value)]));
const section = (style) => (title, ...children) =>
  el("section", { class: style, "data-key": title.replace(/[\d,]+/g, "") }, el("h2", null, title), children);
const card = section("card");
const wide = section("card wide");
// What has a column of its own on a wide screen; on a narrow one it stands below the row's first cell.
const remark = (...children) => el("div", { class: "remark" }, children);
const tableOf = (heads, rows) => el("div", { class: "scroll" }, el("table", null,
  el("thead", null, el("tr", null, heads.map((head) => (typeof head === "string" ? [head] : head)).map(([head, style]) =>
    el("th", { class: [head.startsWith(">") ? "right" : "", style || ""].join(" ").trim() || null, scope: "col" }, head.replace(">", ""))))),
  el("tbody", null, rows)));
