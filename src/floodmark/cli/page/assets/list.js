// All tables. Only the rows in view exist, so that ten thousand are as quick as ten.

const COLUMNS = [
  ["condition", "State", (t) => RANK.get(stateIn(t)), "How the table is doing; the worst that applies"],
  ["name", "Table", (t) => t.table_name, "Source and name of the table"],
  ["pipe", "Pipeline", (t) => t.pipeline || "￿", "Pipeline that syncs the table"],
  ["fresh", ">Data age", (t) => (t.fresh ? -time(t.fresh) : Infinity), "Everything that was in the source this long ago is in the warehouse"],
  ["since", ">Since", (t) => (t.since ? -time(t.since) : -Infinity), "For how long the table has been in this state"],
  ["today", ">Rows today", (t) => (t.rows_today === undefined ? -2 : -t.rows_today), "Rows read since midnight UTC"],
  ["verified", ">Verified", (t) => (t.verified ? -time(t.verified) : Infinity), "How long ago rows of source and warehouse were last compared"],
  ["reconciled", ">Reconciled", (t) => (t.reconciled ? -time(t.reconciled) : Infinity), "How long ago deleted and differing rows were last looked for"],
  ["why", "Why", (t) => t.reason || "￿", "Why the table is in this state"],
];
// A table that is no longer configured is not expected to be in any other state.
const OTHER = "not configured";
const stateIn = (table) => (table.pipeline ? table.state : OTHER);
const causeOf = (table) => (data.with_cause.includes(stateIn(table)) ? table.cause || table.reason : null);
const MOST_CAUSES = 4;
const MOST_MORE_CAUSES = 50;
const MOST_PRINTED = 1000;
const list = { printed: false, left: "", query: "", state: "", cause: "", sort: "", down: false, shown: [], at: 0, scroll: 0, rows: null };

const chosenTables = () => {
  const words = list.query.toLowerCase().split(/\s+/).filter(Boolean);
  let found = data.tables;
  if (list.state) found = found.filter((table) => stateIn(table) === list.state);
  if (list.cause) found = found.filter((table) => causeOf(table) === list.cause);
  if (words.length) {
    found = found.filter((table) => words.every((word) => textOf(table).includes(word)));
  }
  const column = COLUMNS.find(([key]) => key === list.sort);
  if (!column) return found; // the worst first, as the lake was read
  const keys = new Map(found.map((table) => [table, column[2](table)]));
  const sign = list.down ? -1 : 1;
  return [...found].sort((a, b) => {
    const [left, right] = [keys.get(a), keys.get(b)];
    return sign * (left < right ? -1 : left > right ? 1 : 0);
  });
};
const textOf = (table) => {
  texts.has(table) || texts.set(table,
    `${table.table_name} ${table.pipeline || ""} ${stateIn(table)} ${table.reason || ""}`.toLowerCase());
  return texts.get(table);
};

const rowHeight = () => (matchMedia("(max-width: 720px)").matches ? 62 : 34);
const ageOf = (text) => (text ? brief(now() - time(text)) : "–");

const rowOf = (table, index) => {
  const late = ["behind", "failing", "held back"].includes(stateIn(table)) ? `late ${kind(table.state)}` : "";
  const cell = (key, more, ...children) => el("div", { role: "cell", class: `${key} ${more}` }, children);
  const row = el("div", { role: "row", class: "row cols", "aria-rowindex": index + 2, "data-key": index + 1 },
    cell("condition", "", stateOf(stateIn(table), table.running ? ", running" : null)),
    cell("name", "", el("a", { href: linkTo("table", table.table_name), title: table.table_name,
      tabindex: index === list.at ? 0 : -1, "data-at": index }, shortenedName(table.table_name))),
    cell("pipe", "", table.pipeline || "–"),
    cell("fresh", `right ${late}`, table.fresh ? ageOf(table.fresh) : "unknown"),
    cell("since", "right", ageOf(table.since)),
    cell("today", "right", number(table.rows_today)),
    cell("verified", "right", ageOf(table.verified)),
    cell("reconciled", "right", ageOf(table.reconciled)),
    // The name's link covers the row; this one is above it, so that the whole reason can be shown.
    cell("why", "", table.reason ? el("a", { href: linkTo("table", table.table_name), title: table.reason, tabindex: -1 }, table.reason) : null));
  row.style.top = `${index * rowHeight()}px`;
  return row;
};

const drawRows = (focus) => {
  const rows = list.rows;
  if (!rows || !rows.isConnected) return;
  const height = rowHeight();
  rows.style.height = `${list.shown.length * height}px`;
  const top = rows.getBoundingClientRect().top;
  let first = Math.max(0, Math.floor(-top / height) - 8);
  let last = Math.min(list.shown.length, Math.ceil((innerHeight - top) / height) + 8);
  if (list.printed) {
    [first, last] = [0, Math.min(list.shown.length, MOST_PRINTED)];
    rows.style.height = `${last * height}px`;
  }
  const had = rows.contains(document.activeElement);
  const made = [];
  for (let index = first; index < last; index += 1) made.push(rowOf(list.shown[index], index));
  updateChildren(rows, made);
  if (focus || (had && !rows.contains(document.activeElement))) {
    rows.querySelector(`[data-at="${list.at}"]`)?.focus({ preventScroll: true });
  }
};

const moveTo = (index) => {
  if (!list.shown.length) return;
  list.at = Math.min(list.shown.length - 1, Math.max(0, index));
  const height = rowHeight();
  const top = list.rows.getBoundingClientRect().top + list.at * height;
  if (top < 40) scrollBy(0, top - 40);
  else if (top + height > innerHeight) scrollBy(0, top + height - innerHeight + 4);
  drawRows(true);
};

const updateList = () => {
  list.shown = chosenTables();
  list.at = Math.min(list.at, Math.max(0, list.shown.length - 1));
  document.getElementById("filter").value = list.query;
  document.getElementById("sorts").value = list.sort;
  list.rows.closest(".grid").setAttribute("aria-rowcount", list.shown.length + 1);
  document.getElementById("empty").hidden = list.shown.length > 0;
  document.getElementById("shown").textContent =
    list.shown.length === data.tables.length ? "" : `${number(list.shown.length)} of ${number(data.tables.length)}`;
  for (const button of document.querySelectorAll("[data-state]")) {
    button.setAttribute("aria-pressed", button.dataset.state === list.state);
  }
  for (const button of document.querySelectorAll("[data-cause]")) {
    button.setAttribute("aria-pressed", button.dataset.cause === list.cause);
  }
  for (const head of document.querySelectorAll(".heads > *")) {
    const sorted = head.dataset.key === list.sort;
    if (sorted) head.setAttribute("aria-sort", list.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  drawRows();
};

const sortBy = (key) => {
  if (list.sort !== key) [list.sort, list.down] = [key, false];
  else if (!list.down) list.down = true;
  else [list.sort, list.down] = ["", false];
  list.at = 0;
  keepFilter();
  updateList();
};

const fact = (value, text, tone) =>
  el("div", { class: `fact ${tone || ""}` }, el("b", null, value), el("span", null, text));

const safety = () => {
  const { mirror, drill } = data;
  const behind = mirror && mirror.behind_since;
  return [
    mirror ? fact(behind ? brief(now() - time(behind)) : "complete", behind ? "behind: the mirror" : "mirror", behind ? "behind" : "") : null,
    drill ? fact(`${brief(now() - time(drill.at))} ago`, `last drill: ${drill.text}`, drill.failed ? "failing" : "") : null,
  ];
};

const heading = (well, all) => el("h1", { tabindex: -1 }, !all ? "No tables" : well === all
  ? (all === 1 ? "The table is in step" : `All ${number(all)} tables are in step`)
  : `${number(well)} of ${number(all)} tables ${well === 1 ? "is" : "are"} in step`);

const overview = (tables) => {
  const configured = tables.filter((table) => table.pipeline);
  const ages = configured.filter((table) => table.fresh).map((table) => now() - time(table.fresh)).sort((a, b) => a - b);
  const unknown = configured.length - ages.length;
  const today = configured.filter((table) => table.rows_today !== undefined);
  const rows = today.reduce((sum, table) => sum + table.rows_today, 0);
  const well = configured.filter((table) => table.state === "in step").length;
  const uncounted = configured.length - today.length;
  const last = data.runs[0];
  const { mirror } = data;
  return [el("div", { class: "title" }, heading(well, configured.length)), el("div", { class: "facts" },
    fact(ages.length ? brief(ages[Math.floor(ages.length / 2)]) : "unknown", "median data age"),
    fact(ages.length ? brief(ages[ages.length - 1]) : "unknown",
      unknown ? `oldest data; ${number(unknown)} unknown` : "oldest data"),
    fact(today.length || !configured.length ? number(rows) : "unknown",
      uncounted && today.length ? `rows read today, ${number(uncounted)} tables not counted` : "rows read today"),
    fact(last ? `${brief(now() - time(last.ended_at || last.seen_at))} ago` : "none",
      last ? ["last run: ", el("a", { href: linkTo("run", last.run_id), class: `outcome ${kind(last.status)}` }, last.status)] : "no run recorded"),
    safety()),
    mirror && mirror.behind_since ? el("div", { class: "note behind" }, el("p", null, `mirror: ${mirror.text}`)) : null];
};

const choose = (key, value) => () => {
  list[key] = list[key] === value ? "" : value;
  list.at = 0;
  keepFilter();
  updateList();
};

// The same cause of many tables is shown once, the worst and most frequent first.
const causes = (tables) => {
  const groups = new Map();
  for (const table of tables) {
    const cause = causeOf(table);
    if (!cause) continue;
    const group = groups.get(cause) || groups.set(cause, { table, count: 0, hint: null }).get(cause);
    group.count += 1;
    group.hint = group.hint || table.hint;
  }
  const sorted = [...groups].sort(([, a], [, b]) => RANK.get(a.table.state) - RANK.get(b.table.state) || b.count - a.count);
  if (!sorted.length) return null;
  const most = unfolded.has("causes") ? MOST_MORE_CAUSES : MOST_CAUSES;
  const rest = sorted.length - most;
  return el("section", { class: "causes", "aria-label": "Causes" }, sorted.slice(0, most).map(([cause, { table, count, hint }]) =>
    el("div", { class: `cause ${kind(table.state)}`, "data-key": cause },
      el("button", { type: "button", "data-cause": cause, "aria-pressed": "false", title: "Show only these tables", onclick: choose("cause", cause) },
        el("b", null, count === 1 ? shortenedName(table.table_name) : `${number(count)} tables`), stateOf(table.state)),
      el("div", null, el("p", null, cause), hintOf(hint)))),
    rest <= 0 ? null : unfolded.has("causes") ? el("p", { class: "quiet" }, `and ${number(rest)} other causes`)
      : el("button", { type: "button", class: "more", onclick: () => { unfolded.add("causes"); route(); } }, `Show ${number(rest)} more causes`));
};

const chips = (tables) => {
  const counts = new Map([...RANK.keys()].map((state) => [state, 0]));
  tables.forEach((table) => counts.set(stateIn(table), counts.get(stateIn(table)) + 1));
  const used = [...counts].filter(([, count]) => count);
  const share = el("div", { class: "share", "aria-hidden": "true" },
    used.map(([state]) => el("div", { class: kind(state) })));
  used.forEach(([, count], index) => { share.children[index].style.flex = `${count} 1 0`; });
  return [share, used.map(([state, count]) => el("button",
    { type: "button", class: `chip ${kind(state)}`, "data-state": state, "data-key": state, "aria-pressed": "false", onclick: choose("state", state) },
    stateOf(state), el("b", null, number(count))))];
};

const showList = () => {
  document.title = "Floodmark";
  const [share, buttons] = chips(data.tables);
  const input = el("input", { type: "search", id: "filter", placeholder: "Filter tables  ( / )", "aria-label": "Filter tables",
    autocomplete: "off", spellcheck: "false", oninput: (event) => {
      list.query = event.target.value;
      list.at = 0;
      keepFilter();
      updateList();
    } });
  const sorts = el("select", { class: "small", id: "sorts", "aria-label": "Sort by", onchange: (event) => {
    [list.sort, list.down, list.at] = [event.target.value, false, 0];
    keepFilter();
    updateList();
  } },
    el("option", { value: "" }, "worst first"),
    COLUMNS.map(([key, text]) => el("option", { value: key }, text.replace(">", ""))));
  // Columns that nothing is known about take no room.
  const unused = [["pipe", new Set(data.tables.map((table) => table.pipeline).filter(Boolean)).size < 2],
    ...["since", "verified", "reconciled"].map((key) => [key, !data.tables.some((table) => table[key])])];
  const opened = show(overview(data.tables), causes(data.tables), share,
    el("div", { class: "tools" }, buttons, el("span", { class: "quiet", id: "shown", role: "status" }), sorts, input),
    el("div", { class: ["grid", ...unused.filter(([, none]) => none).map(([key]) => `no-${key}`)].join(" "), role: "table", "aria-label": "Tables" },
      el("div", { class: "heads cols", role: "row" }, COLUMNS.map(([key, text, , title]) =>
        el("div", { role: "columnheader", class: `${key} ${text.startsWith(">") ? "right" : ""}`, "data-key": key },
          el("button", { type: "button", title, onclick: () => sortBy(key) }, text.replace(">", ""))))),
      el("div", { class: "rows", role: "rowgroup", "data-own": true }),
      el("div", { class: "none", id: "empty", hidden: true }, data.tables.length ? "No table matches." : "No tables.")));
  list.rows = view.querySelector(".rows");
  updateList();
  if (!opened) return;
  scrollTo(0, list.scroll);
  const back = list.shown.findIndex((table) => table.table_name === list.left);
  if (back >= 0) list.at = back;
  drawRows(back >= 0);
};
