// One table: what is wrong, its stages, and its history.

const problems = (table) => {
  const notes = [];
  for (const failure of table.failures || []) {
    notes.push(el("div", { class: "note failing" },
      el("p", null, el("strong", null, `${failure.stage} fails`), ", since ", when(failure.since), ": ", failure.error),
      hintOf(failure.hint)));
  }
  if (table.reason && !(table.state === "failing" && notes.length)) {
    const since = table.since ? [", since ", when(table.since)] : [];
    notes.push(el("div", { class: `note ${kind(table.state)}` },
      el("p", null, el("strong", null, table.state), since, ": ", table.reason),
      hintOf(table.hint),
      table.state === "held back" ? el("p", { class: "quiet" }, "Newer rows are read by the first run after this has ended.") : null));
  }
  for (const warning of table.warnings || []) {
    notes.push(el("div", { class: "note" }, el("p", null, warning)));
  }
  return notes;
};

const stageColumn = (stage, title, state, pairs) => el("div", null,
  el("h3", { class: stage }, title, state ? stateOf(state.status || "pending") : null),
  state ? definitions(pairs) : el("p", { class: "quiet" }, "Unknown: the watermark cannot be read, or there is none."),
  state && state.error ? el("p", { class: "quiet" }, state.error) : null);

// A full reload has no positions.
const equalUpTo = (verify) => {
  if (verify.position !== "the start") return verify.position;
  return verify.status === "success" ? "the end" : "unknown";
};

const stageColumns = (stages, table) => {
  const { extract, load, verify, reconcile } = stages || {};
  const counted = (value) => (value ? number(value) : "");
  const columns = [
    stageColumn("extract", "Extracted", extract, extract && [
      ["rows", number(extract.total_rows)], ["quarantined", counted(extract.quarantined_rows)],
      ["position", positionOf(extract.position)], ["manifest", extract.manifest],
      ["files", `${number(extract.s3_file_count)} ${size(extract.s3_bytes) ? `(${size(extract.s3_bytes)})` : ""}`],
      ["last chunk", when(extract.last_extraction_time)], ["set by hand", stages.set_by_hand ? "yes" : ""],
      ["not read", extract.before_start ? `${extract.before_start.exact ? "" : "at least "}${number(extract.before_start.rows)} older rows` : ""],
    ]),
    stageColumn("load", "Loaded", load, load && [
      ["rows", number(load.total_rows)], ["quarantined", counted(load.quarantined_rows)],
      ["deleted", counted(load.deleted_rows)], ["manifest", load.manifest],
      ["target", load.target], ["last load", when(load.last_load_time)],
    ]),
    stageColumn("verify", "Verified", verify, verify && [
      ["equal up to", positionOf(equalUpTo(verify))],
      ["manifest", verify.verified_sequence ? `${verify.verified_epoch}-${verify.verified_sequence}` : "none"],
      ["compared", when(table.verified)],
    ]),
  ];
  if (reconcile && reconcile.status) {
    columns.push(stageColumn("reconcile", "Reconciled", reconcile, !reconcile.last_run_time ? [["finished", "never"]] : [
      ["finished", when(reconcile.last_finished)], ["rows compared", number(reconcile.rows)],
      ["deleted", number(reconcile.deleted)], ["missing", number(reconcile.missing)],
      ["stale", number(reconcile.stale)], ["duplicate", number(reconcile.duplicate)],
      ["left in the target", counted(reconcile.left)],
    ]));
  }
  return wide("Stages", el("div", { class: "stages" }, columns));
};

const differences = (table, details) => {
  const found = details.found || [];
  const runs = (details.runs || []).filter((run) => run.table.status === "differs");
  const state = details.stages && details.stages.verify;
  const lines = [];
  if (state && state.status === "differs") lines.push(el("p", null, state.error || "The last comparison found a difference."));
  else if (!table.verified && !table.reconciled) lines.push(el("p", { class: "quiet" }, "Unknown: source and target were never compared."));
  else if (!runs.length && !found.length) {
    lines.push(el("p", null, "None. ", el("span", { class: "quiet" }, "Last compared ", when(table.reconciled || table.verified), ".")));
  }
  const rows = [
    ...runs.map((run) => [run.ended_at, `${run.command} found: ${run.table.error || "a difference"}`, runLink(run.run_id)]),
    ...found.map((each) => [each.at, ["deleted", "missing", "stale", "duplicate"]
      .filter((key) => each[key]).map((key) => `${number(each[key])} ${key}`).join(", "), runLink(each.run_id)]),
  ].sort((a, b) => (a[0] < b[0] ? 1 : -1)).slice(0, 20);
  if (rows.length) {
    lines.push(tableOf(["When (UTC)", "Found", "Run"], rows.map(([at, text, link]) => el("tr", null,
      el("td", null, stamp(at)), el("td", { class: "text" }, text), el("td", { class: "mono" }, link)))));
  }
  return [rows.length, "Differences and deletes", lines];
};

const why = (result) => result.error || result.held_back || "";

const tableRuns = (runs) => {
  if (!runs.length) return wide("Runs", el("p", { class: "quiet" }, `No recorded run has worked on this table.`));
  const newest = [...runs].reverse();
  const most = Math.max(...newest.map((run) => allSeconds(run.table)));
  const explained = newest.some((run) => why(run.table));
  const rows = newest.map((run) => el("tr", null,
    el("td", null, runLink(run.run_id, started(run.started_at)), why(run.table) ? remark(why(run.table)) : null),
    el("td", null, run.command),
    el("td", null, stateOf(run.table.status || "success")),
    el("td", { class: "right" }, number(run.table.rows || 0)),
    el("td", { class: "right" }, number(run.table.loaded_rows || 0)),
    el("td", { class: "bar" }, stageBar(run.table, most)),
    el("td", { class: "right" }, took(allSeconds(run.table))),
    explained ? el("td", { class: "text" }, why(run.table)) : null));
  const [shown, more] = folded("runs", rows, 10);
  return wide(`Runs: the last ${number(newest.length)}`,
    runStrip(runs.map((run) => ({ ...run, status: run.table.status || "success" })), (run) => linkTo("run", run.run_id)),
    tableOf(["Started (UTC)", "Command", "Result", ">Read", ">Loaded", "Stages", ">Took", ...(explained ? ["Why"] : [])], shown), more, stageLegend());
};

const watermarkHistory = (details) => {
  const known = new Set(details.manifests.map((manifest) => manifest.id));
  const older = details.changes.filter((change) => !known.has(change.id));
  const all = [...older, ...details.manifests].reverse();
  if (!all.length) return wide("Watermark", el("p", { class: "quiet" }, "Nothing was committed yet."));
  const was = (manifest, before) => (manifest.data || !before || !known.has(before.id) ? null
    : el("div", { class: "quiet" }, `was ${before.position}`));
  const rows = all.map((manifest, index) => el("tr", { class: manifest.data ? null : "hand" },
    el("td", { class: "mono" }, manifest.id),
    el("td", null, stamp(manifest.at)),
    el("td", { class: "name" }, manifest.what),
    el("td", { class: "place" }, positionOf(manifest.position), was(manifest, all[index + 1])),
    el("td", null, manifest.author),
    el("td", { class: "mono" }, runLink(manifest.run_id))));
  const hand = all.findLastIndex((manifest) => !manifest.data);
  const [shown, more] = folded("manifests", rows, Math.max(10, Math.min(25, hand + 2)));
  return wide("Watermark: the last commits, and what operators changed",
    tableOf(["Manifest", "When (UTC)", "Change", "Position after it", "Who", "Run"], shown), more);
};

const recoveries = (found) => [found.length, "Recoveries of the watermark", found.length
  ? tableOf(["When (UTC)", "Why", "Recovered from", ">Took"],
    [...found].reverse().map((event) => el("tr", null, el("td", null, stamp(event.at)), el("td", { class: "name" }, event.reason),
      el("td", { class: "name" }, event.source), el("td", { class: "right" }, took(event.seconds)))))
  : el("p", { class: "quiet" }, `None in the last ${data.days} days.`)];

// Side by side if both are short.
const incidents = (table, details) => {
  const found = [differences(table, details), recoveries(details.recoveries || [])];
  const make = found.some(([long]) => long) ? wide : card;
  return found.map(([, title, content]) => make(title, content));
};

const tableBody = (table, details) => {
  if (details.problem) {
    return [stageColumns(details.stages, table), el("div", { class: "note failing" },
      el("p", null, `The history cannot be read: ${details.problem}`))];
  }
  return el("div", { class: "cards" },
    stageColumns(details.stages, table),
    card("Age of the data in the lake, by recorded runs", freshnessChart(details.runs || [], table.behind_after)),
    card("Rows read a day", daysChart(details.history_days || [], details.since)),
    incidents(table, details),
    tableRuns(details.runs || []),
    watermarkHistory(details));
};

const showTable = async (name) => {
  const table = data.tables.find((each) => each.table_name === name);
  document.title = `${name} – Floodmark`;
  const head = () => el("div", { class: "crumb" }, el("a", { href: "#" }, "← Tables"));
  if (!table) {
    show(head(), el("h1", { tabindex: -1 }, name), el("p", null, "There is no such table here."));
    return;
  }
  const top = () => [head(),
    el("div", { class: "title" }, el("h1", { tabindex: -1 }, nameOf(name)),
      stateOf(stateIn(table), table.running ? ", running" : null),
      el("span", { class: "quiet" }, table.pipeline ? `pipeline ${table.pipeline}` : "It is in the lake, but in no pipeline.")),
    problems(table),
    el("div", { class: "facts" },
      fact(table.fresh ? brief(now() - time(table.fresh)) : "unknown", "age of the data in the warehouse"),
      fact(table.read_fresh ? brief(now() - time(table.read_fresh)) : "unknown", "age of the data in the lake"),
      fact(number(table.rows_today), "rows read today"),
      fact(brief(table.behind_after * 1000), "behind after"),
      table.running ? fact(runLink(table.running, "running"), "now") : null)];
  const details = await loaded("table", name, top);
  if (details === STALE) return;
  show(top(), details ? tableBody(table, details)
    : el("p", { class: "quiet" }, `This file has the details of ${number(Object.keys(data.table_details || {}).length)} tables, the worst first.`,
      " For this one: ", el("code", null, `floodmark status -t ${name} --html FILE`), ", or ", el("code", null, "floodmark serve"), "."));
};
