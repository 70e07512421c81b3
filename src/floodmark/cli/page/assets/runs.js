// All recorded runs, and one run with its tables.

const MOST_ROWS = 500;

const lasted = (run) => {
  if (run.ended_at) return brief(time(run.ended_at) - time(run.started_at));
  return run.status === "running" ? `${brief(now() - time(run.started_at))} so far` : "unknown";
};

// A run that has not ended, or was killed, may have read more than its record says.
const atLeast = (run, value) => {
  if (run.ended_at) return number(value);
  return value ? `≥ ${number(value)}` : "unknown";
};

// The same as RunRecord.failed.
const isFailed = (run) => run.failed > 0 || ["failed", "partial", "did not finish"].includes(run.status);

const filterRuns = (key, value) => {
  const parts = address();
  if (value) parts.set(key, value);
  else parts.delete(key);
  history.replaceState(null, "", `#${parts}`);
  unfolded.clear();
  route();
};

const runFilters = (failed, pipeline) => {
  const pipelines = [...new Set(data.runs.flatMap((run) => run.pipelines || []))].sort();
  const chip = (key, text, count, pressed) => el("button", { type: "button", class: `chip ${key}`, "data-key": text,
    "aria-pressed": String(pressed), onclick: () => filterRuns("failed", key && !pressed ? "1" : "") }, text, el("b", null, number(count)));
  const chosen = data.runs.filter((run) => !pipeline || (run.pipelines || []).includes(pipeline));
  const select = pipelines.length < 2 ? null : el("select", { id: "pipeline", "aria-label": "Pipeline", onchange: (event) => filterRuns("pipeline", event.target.value) },
    el("option", { value: "" }, "all pipelines"),
    pipelines.map((each) => el("option", { value: each, selected: each === pipeline }, each)));
  return el("div", { class: "tools" }, chip("", "all", chosen.length, !failed),
    chip("failed", "failed", chosen.filter(isFailed).length, failed), select);
};

const showRuns = () => {
  document.title = "Runs – Floodmark";
  const parts = address();
  runsHash = location.hash;
  const [failed, pipeline] = [parts.has("failed"), parts.get("pipeline") || ""];
  const runs = data.runs.filter((run) => (!failed || isFailed(run)) && (!pipeline || (run.pipelines || []).includes(pipeline)));
  const head = el("div", { class: "title" }, el("h1", { tabindex: -1 }, "Runs"),
    el("span", { class: "quiet" }, data.runs.length ? `the last ${number(data.runs.length)}, newest first` : ""));
  if (!data.runs.length) {
    show(head, el("p", { class: "quiet" }, "No run is recorded in the lake."));
    return;
  }
  if (!runs.length) {
    show(head, runFilters(failed, pipeline), el("p", { class: "quiet" }, "No run matches."));
    return;
  }
  const most = Math.max(...runs.map(allSeconds));
  const rows = runs.map((run) => el("tr", null,
    el("td", null, runLink(run.run_id, started(run.started_at))),
    el("td", null, stateOf(run.status)),
    el("td", { class: "right" }, lasted(run)),
    el("td", { class: "right spare" }, number(run.table_count)),
    el("td", { class: run.failed ? "right failed late" : "right" }, run.failed ? number(run.failed) : ""),
    el("td", { class: "right" }, atLeast(run, run.rows)),
    el("td", { class: "right" }, atLeast(run, run.loaded_rows)),
    el("td", { class: "bar" }, stageBar(run, most)),
    el("td", { class: "text" }, run.what, run.error ? `: ${run.error}` : "")));
  const [shown, more] = folded("all", rows, 50);
  show(head, runFilters(failed, pipeline), el("div", { class: "cards" },
    wide("Over time", runStrip(runs, (run) => linkTo("run", run.run_id))),
    wide("Work of each stage, summed over its tables",
      tableOf(["Started (UTC)", "Status", ">Lasted", [">Tables", "spare"], ">Failed", ">Read", ">Loaded", "Stages", "What"], shown),
      more, stageLegend())));
};

// The hint stands with the first table of the same cause.
const reasons = (tables) => {
  const hints = new Set();
  return new Map(tables.map((table) => {
    const hint = hints.has(table.hint) ? null : table.hint;
    hints.add(hint);
    return [table, () => [why(table), hintOf(hint)]];
  }));
};

const runTables = (tables) => {
  if (!tables.length) return card("Tables", el("p", { class: "quiet" }, "No table has anything to report."));
  const order = ["failed", "differs", "held_back", "busy", "success"];
  const rank = (table) => order.indexOf(table.status || "success");
  const sorted = [...tables].sort((a, b) => rank(a) - rank(b) || allSeconds(b) - allSeconds(a));
  const most = Math.max(...tables.map(allSeconds));
  const explained = tables.some(why);
  const reasonOf = reasons(sorted);
  const rows = sorted.slice(0, MOST_ROWS).map((table) => el("tr", null,
    el("td", { class: "name" }, tableLink(table.table_name), why(table) ? remark(reasonOf.get(table)()) : null),
    el("td", null, stateOf(table.status || "success")),
    el("td", { class: "right" }, number(table.rows || 0)),
    el("td", { class: "right" }, size(table.bytes)),
    el("td", { class: "right" }, number(table.loaded_rows || 0)),
    el("td", { class: "bar" }, stageBar(table, most)),
    el("td", { class: "right" }, took(allSeconds(table) || null)),
    el("td", { class: "right" }, table.ended_at ? clock(time(table.ended_at)) : ""),
    explained ? el("td", { class: "text" }, reasonOf.get(table)()) : null));
  const left = tables.length - Math.min(tables.length, MOST_ROWS);
  return wide("Tables: how long each stage took",
    tableOf(["Table", "Result", ">Read", ">Bytes", ">Loaded", "Stages", ">Took", ">Done at", ...(explained ? ["Why"] : [])], rows),
    left ? el("p", { class: "quiet" }, `and ${number(left)} more that took less`) : null, stageLegend());
};

const showRun = async (id) => {
  document.title = `Run ${id} – Floodmark`;
  const head = el("div", { class: "crumb" }, el("a", { href: runsHash }, "← Runs"));
  const title = (...more) => el("div", { class: "title" }, el("h1", { tabindex: -1 }, id), more);
  const run = await loaded("run", id, () => [head.cloneNode(true), title()]);
  if (run === STALE) return;
  if (!run) {
    const known = data.runs.some((each) => each.run_id === id);
    show(head, title(), el("p", { class: "quiet" },
      known ? "This file has no details of this run; 'floodmark runs show' prints them."
        : "There is no record of this run among the last ones: an operator's change leaves none, and old ones are removed."));
    return;
  }
  if (run.problem) {
    show(head, title(), el("div", { class: "note failing" }, el("p", null, `The run cannot be read: ${run.problem}.`)));
    return;
  }
  show(head,
    title(stateOf(run.status), el("span", { class: "quiet" }, run.what)),
    run.error ? el("div", { class: "note failing" }, el("p", null, run.error), hintOf(run.hint)) : "",
    el("div", { class: "facts" },
      fact(lasted(run), `since ${stamp(run.started_at)} UTC`),
      fact(number(run.table_count), `tables, ${number(run.unchanged)} with nothing new`),
      fact(number(run.failed), "failed", run.failed ? "failing" : ""),
      fact(atLeast(run, run.rows), "rows read"),
      fact(atLeast(run, run.loaded_rows), "rows loaded"),
      fact(run.who, `version ${run.program || "unknown"}`)),
    el("div", { class: "cards" },
      (run.tables || []).length ? [
        card("Tables done over time", doneChart(run)),
        card("Time of each stage, summed over its tables", el("div", { class: "stages" },
          STAGES.map(([stage, key]) => el("div", null, el("h3", { class: stage }, stage),
            el("div", { class: "fact" }, el("b", null, run[key] ? took(run[key]) : "none")))))),
      ] : null,
      runTables(run.tables || []),
      run.notices ? wide("Notices", run.notices.map((notice) => el("div", { class: `note ${notice.level === "info" ? "" : "held_back"}` },
        el("p", null, `${notice.level}: ${notice.message}`)))) : null));
};
