// Charts are drawn in pixels, for the width that they have, and again when it changes.

const LEFT = 46;
const DAY = 86400000;

const ticks = (from, to, most) => {
  const steps = [1000, 5000, 15000, 60000, 300000, 900000, 3600000, 3 * 3600000, 6 * 3600000, DAY, 2 * DAY, 7 * DAY];
  const step = steps.find((each) => (to - from) / each <= most) || 30 * DAY;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  const text = (at) => new Date(at).toISOString();
  const [start, end] = step >= DAY ? [5, 10] : [11, step < 60000 ? 19 : 16];
  return found.map((at) => [at, text(at).slice(start, end)]);
};

const timeAxis = (from, to, x, y) => ticks(from, to, Math.max(2, (x(to) - x(from)) / 75)).map(([at, text]) => [
  svg("line", { class: "axis", x1: x(at), x2: x(at), y1: y, y2: y + 4 }),
  svg("text", { x: x(at), y: y + 16, "text-anchor": "middle" }, text),
]);

const scale = (from, to, width) => (at) => LEFT + ((at - from) / Math.max(1, to - from)) * (width - LEFT - 8);

const drawChart = (chart) => {
  const width = Math.floor(chart.clientWidth);
  if (width) updateChildren(chart, [chart.draw(width)]);
};
const charts = new ResizeObserver((changes) => changes.forEach((change) => drawChart(change.target)));

const chart = (height, label, draw) => {
  const made = el("div", { class: "chart" });
  made.draw = (width) => svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    draw(width).flat(3).filter((part) => part !== null));
  made.style.height = `${height}px`;
  charts.observe(made);
  return made;
};

// Everything in the source at `fresh` had been read when the run ended. Until the next recorded run
// the data was at most as old as the line shows.
const freshnessChart = (runs, limit) => {
  const points = runs
    .filter((run) => run.table.fresh && run.ended_at && !["failed", "busy"].includes(run.table.status))
    .map((run) => ({ at: time(run.ended_at), fresh: time(run.table.fresh), every: run.every_seconds }));
  if (!points.length) {
    return el("p", { class: "quiet" }, "Unknown: no recorded run has read this table to its end.");
  }
  const from = points[0].at;
  const to = Math.max(now(), from);
  const line = [];
  points.forEach((point, index) => {
    if (index) line.push([point.at, point.at - points[index - 1].fresh]);
    line.push([point.at, point.at - point.fresh]);
  });
  line.push([to, to - points[points.length - 1].fresh]);
  const most = Math.max(...line.map(([, age]) => age), 1000) * 1.08;
  const height = 150;
  const y = (age) => height - (Math.max(0, age) / most) * (height - 12);
  const rounds = points.some((point) => point.every);
  const current = `Age of the data in the lake, now ${brief(to - points[points.length - 1].fresh)}`;
  const drawn = chart(height + 22, current, (width) => {
    const x = scale(from, to, width);
    const path = line.map(([at, age]) => `${x(at).toFixed(1)},${y(age).toFixed(1)}`);
    return [
      svg("line", { class: "axis", x1: LEFT, x2: width - 8, y1: height, y2: height }),
      svg("polygon", { class: "area", points: [`${x(from)},${height}`, ...path, `${x(to)},${height}`].join(" ") }),
      rounds ? null : svg("polyline", { class: "edge", points: path.join(" ") }),
      points.length > width / 5 ? null : points.map((point) => svg("circle",
        { class: "dot", cx: x(point.at), cy: y(point.at - point.fresh), r: 2.2 },
        svg("title", null, `${stamp(new Date(point.at).toISOString())}: ${brief(point.at - point.fresh)} old`))),
      limit && limit * 1000 < most ? [
        svg("line", { class: "limit", x1: LEFT, x2: width - 8, y1: y(limit * 1000), y2: y(limit * 1000) }),
        svg("text", { x: width - 8, y: y(limit * 1000) - 4, "text-anchor": "end" }, `behind after ${brief(limit * 1000)}`),
      ] : null,
      [most / 2, most].map((age) => svg("text", { x: LEFT - 6, y: y(age) + 4, "text-anchor": "end" }, brief(age))),
      timeAxis(from, to, x, height),
    ];
  });
  const explain = rounds
    ? "At most this old: of rounds that find nothing new, one an hour is recorded."
    : "Between two recorded runs the data grows older; each run that reads the table to its end brings it up to date.";
  return [drawn, el("div", { class: "legend" }, explain)];
};

const daysChart = (days, since) => {
  const from = Math.floor(time(since) / DAY) * DAY;
  const today = Math.floor(now() / DAY) * DAY;
  const rows = new Map(days.map((day) => [day.day, day]));
  const count = Math.round((today - from) / DAY) + 1;
  const most = Math.max(...days.map((day) => day.rows), 1);
  const height = 150;
  const total = days.reduce((sum, day) => sum + day.rows, 0);
  const cut = days.some((day) => day.partial);
  const bar = (index, step) => {
    const name = new Date(from + index * DAY).toISOString().slice(0, 10);
    const day = rows.get(name);
    const now = from + index * DAY === today;
    const part = now || (day && day.partial);
    const tall = day ? Math.max(1.5, (day.rows / most) * (height - 12)) : 0;
    const text = `${name}${now ? " (until now)" : ""}${day && day.partial ? ` (from ${stamp(since).slice(11)})` : ""}: ${number(day ? day.rows : 0)} rows`;
    return svg("rect", { class: part ? "column part" : "column", "data-day": name,
      x: LEFT + index * step + step * .12, width: step * .76, y: height - tall, height: tall },
      svg("title", null, day ? `${text}, ${size(day.bytes)}` : text));
  };
  const label = `Rows read a day: ${number(total)} in ${count} days, at most ${number(days.length ? most : 0)}`;
  return [
    chart(height + 22, label, (width) => {
      const step = (width - LEFT - 8) / count;
      const every = Math.ceil(60 / step);
      return [
        svg("line", { class: "axis", x1: LEFT, x2: width - 8, y1: height, y2: height }),
        days.length ? svg("text", { x: LEFT - 6, y: 16, "text-anchor": "end" }, short(most)) : null,
        Array.from({ length: count }, (_, index) => [bar(index, step), (count - 1 - index) % every === 0
          ? svg("text", { x: LEFT + (index + .5) * step, y: height + 16, "text-anchor": "middle" },
            new Date(from + index * DAY).toISOString().slice(5, 10)) : null]),
      ];
    }),
    el("div", { class: "legend" }, `${number(total)} rows in ${count === 1 ? "one day" : `${count} days`}, since ${stamp(since).slice(0, cut ? 16 : 10)} (UTC)`,
      cut ? `: of the first day only what followed is counted, as the table has too many commits` : ""),
  ];
};

// How long each stage took; the bars of one list have the same scale.
const stageBar = (seconds, most) => {
  let at = 0;
  const parts = STAGES.filter(([, key]) => seconds[key]).map(([stage, key]) => {
    const width = Math.max(.6, (seconds[key] / Math.max(most, .001)) * 100);
    const part = svg("rect", { class: `seg ${stage}`, x: at, width, y: 0, height: 10 },
      svg("title", null, `${stage} ${took(seconds[key])}`));
    at += width;
    return part;
  });
  const text = STAGES.filter(([, key]) => seconds[key]).map(([stage, key]) => `${stage} ${took(seconds[key])}`);
  return svg("svg", { viewBox: "0 0 102 10", preserveAspectRatio: "none", class: "stagebar", role: "img",
    "aria-label": text.join(", ") || "nothing to do" }, parts);
};
const allSeconds = (item) => STAGES.reduce((sum, [, key]) => sum + (item[key] || 0), 0);
const stageLegend = () => el("div", { class: "legend" },
  STAGES.map(([stage]) => el("span", { class: stage }, el("i"), stage)));

const runStrip = (runs, link) => {
  const from = Math.min(...runs.map((run) => time(run.started_at)));
  const to = Math.max(now(), from);
  const span = (run, x) => {
    const end = time(run.ended_at) || (run.status === "running" ? to : time(run.seen_at)) || time(run.started_at);
    const width = Math.max(2.5, x(end) - x(time(run.started_at)));
    return svg("a", { href: link(run), tabindex: -1 },
      svg("rect", { class: `span ${kind(run.status)}`, x: x(time(run.started_at)), width, y: 2, height: 22, rx: 1 },
        svg("title", null, `${stamp(run.started_at)}: ${run.status.replaceAll("_", " ")}`)));
  };
  return chart(46, `${runs.length} runs over time`, (width) => {
    const x = scale(from, to, width);
    return [svg("rect", { class: "lane", x: LEFT, width: width - LEFT - 8, y: 2, height: 22 }),
      runs.map((run) => span(run, x)), timeAxis(from, to, x, 26)];
  });
};

// When the tables of a run were done. When each of them began is not recorded.
const doneChart = (run) => {
  const done = (run.tables || []).filter((table) => table.ended_at).map((table) => time(table.ended_at)).sort((a, b) => a - b);
  const from = time(run.started_at);
  const to = Math.max(time(run.ended_at) || time(run.seen_at) || from, done[done.length - 1] || from, from + 1000);
  const height = 110;
  const y = (count) => height - (count / Math.max(1, done.length)) * (height - 12);
  return chart(height + 22, `${done.length} tables done over time`, (width) => {
    const x = scale(from, to, width);
    const path = [`${x(from)},${y(0)}`];
    done.forEach((at, index) => path.push(`${x(at).toFixed(1)},${y(index).toFixed(1)}`, `${x(at).toFixed(1)},${y(index + 1).toFixed(1)}`));
    path.push(`${x(to)},${y(done.length)}`);
    return [
      svg("line", { class: "axis", x1: LEFT, x2: width - 8, y1: height, y2: height }),
      svg("polyline", { class: "edge", points: path.join(" ") }),
      svg("text", { x: LEFT - 6, y: y(done.length) + 4, "text-anchor": "end" }, NUMBER.format(done.length)),
      timeAxis(from, to, x, height),
    ];
  });
};
