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

const scale = (from, to, width, left = LEFT) => (at) => left + ((at - from) / Math.max(1, to - from)) * (width - left - 8);

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

// Round steps from 0 to at least `most`, two to five of them.
const AGES = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 86400,
  2 * 86400, 5 * 86400, 10 * 86400, 30 * 86400, 100 * 86400, 365 * 86400].map((seconds) => seconds * 1000);
const ageTicks = (most) => {
  const step = AGES.find((each) => most / each <= 4) || AGES[AGES.length - 1] * Math.ceil(most / AGES[AGES.length - 1] / 4);
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) => index * step);
};

// Everything in the source at `fresh` had been read when the run ended; until the next recorded run
// the data grew older. Return the greatest age in each bucket of time.
const oldestBy = (points, from, to, bucket) => {
  const found = [];
  for (let start = Math.floor(from / bucket) * bucket; start < to; start += bucket) found.push({ start, age: 0 });
  points.forEach((point, index) => {
    const end = index + 1 < points.length ? points[index + 1].at : to;
    const first = Math.floor((point.at - found[0].start) / bucket);
    for (let at = first; at < found.length && found[at].start <= end; at += 1) {
      const age = Math.min(end, found[at].start + bucket) - point.fresh;
      found[at].age = Math.max(found[at].age, age);
    }
  });
  return found;
};

const BUCKETS = [[60000, "minute"], [600000, "10 minutes"], [3600000, "hour"], [6 * 3600000, "6 hours"], [DAY, "day"], [7 * DAY, "week"]];
const freshnessChart = (runs, limit) => {
  const points = runs
    .filter((run) => run.table.fresh && run.ended_at && !["failed", "busy"].includes(run.table.status))
    .map((run) => ({ at: time(run.ended_at), fresh: time(run.table.fresh), every: run.every_seconds }))
    .sort((a, b) => a.at - b.at);
  if (!points.length) {
    return el("p", { class: "quiet" }, "Unknown: no recorded run has read this table to its end.");
  }
  const from = points[0].at;
  const to = Math.max(now(), from + 1000);
  // A bucket has at least two runs: a saw tooth for each run would hide how old the data becomes.
  const gaps = points.slice(1).map((point, index) => point.at - points[index].at).sort((a, b) => a - b);
  const usual = gaps[Math.floor(gaps.length / 2)] || 0;
  const [bucket, unit] = BUCKETS.find(([length]) => (to - from) / length <= 48 && length >= 1.9 * usual) || BUCKETS[BUCKETS.length - 1];
  const ages = oldestBy(points, from, to, bucket);
  const scaled = ageTicks(Math.max(limit * 1000, ...ages.map(({ age }) => age)));
  const most = scaled[scaled.length - 1];
  const height = 150;
  const y = (age) => height - (Math.max(0, age) / most) * (height - 18);
  const begin = ages[0].start;
  const label = `Greatest age of the data in each ${unit}, now ${brief(to - points[points.length - 1].fresh)}; behind after ${brief(limit * 1000)}`;
  const drawn = chart(height + 22, label, (width) => {
    const x = scale(begin, begin + ages.length * bucket, width);
    const gap = Math.min(3, (x(begin + bucket) - x(begin)) * .2);
    return [
      scaled.map((age) => [
        svg("line", { class: "axis", x1: LEFT, x2: width - 8, y1: y(age), y2: y(age) }),
        svg("text", { x: LEFT - 6, y: y(age) + 4, "text-anchor": "end" }, age ? brief(age) : "0")]),
      ages.map(({ start, age }) => {
        const tall = Math.max(1.5, height - y(age));
        return svg("rect", { class: `oldest ${age > limit * 1000 ? "late" : ""}`, x: x(start) + gap / 2,
          width: Math.max(1, x(start + bucket) - x(start) - gap), y: height - tall, height: tall },
        svg("title", null, `${stamp(new Date(start).toISOString()).slice(0, bucket >= DAY ? 10 : 16)}: at most ${brief(age)} old`));
      }),
      svg("line", { class: "limit", x1: LEFT, x2: width - 8, y1: y(limit * 1000), y2: y(limit * 1000) }),
      svg("text", { class: "limit-text", x: LEFT + 4, y: y(limit * 1000) - 5 }, `behind after ${brief(limit * 1000)}`),
      timeAxis(begin, begin + ages.length * bucket, x, height),
    ];
  });
  const rounds = points.some((point) => point.every) ? " Of rounds that find nothing new, one an hour is recorded." : "";
  return [drawn, el("div", { class: "legend" }, `The oldest that the data became in each ${unit}, between recorded runs.${rounds}`)];
};

const rowTicks = (most) => {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, most / 4)));
  const step = Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => most / each <= 4));
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) => index * step);
};

const daysChart = (days, since) => {
  const from = Math.floor(time(since) / DAY) * DAY;
  const today = Math.floor(now() / DAY) * DAY;
  const rows = new Map(days.map((day) => [day.day, day]));
  const count = Math.round((today - from) / DAY) + 1;
  const scaled = rowTicks(Math.max(...days.map((day) => day.rows), 1));
  const most = scaled[scaled.length - 1];
  const height = 150;
  const y = (value) => height - (value / most) * (height - 18);
  const total = days.reduce((sum, day) => sum + day.rows, 0);
  const cut = days.some((day) => day.partial);
  const bar = (index, step) => {
    const name = new Date(from + index * DAY).toISOString().slice(0, 10);
    const day = rows.get(name);
    const now = from + index * DAY === today;
    const part = now || (day && day.partial);
    const tall = day ? Math.max(1.5, height - y(day.rows)) : 0;
    const text = `${name}${now ? " (until now)" : ""}${day && day.partial ? ` (from ${stamp(since).slice(11)})` : ""}: ${number(day ? day.rows : 0)} rows`;
    return svg("rect", { class: part ? "column part" : "column", "data-day": name,
      x: LEFT + index * step + step * .12, width: step * .76, y: height - tall, height: tall },
      svg("title", null, day ? `${text}, ${size(day.bytes)}` : text));
  };
  const label = `Rows read a day: ${number(total)} in ${count} days, at most ${number(Math.max(0, ...days.map((day) => day.rows)))}`;
  return [
    chart(height + 22, label, (width) => {
      const step = (width - LEFT - 8) / count;
      const every = Math.ceil(60 / step);
      return [
        scaled.map((rows) => [
          svg("line", { class: "axis", x1: LEFT, x2: width - 8, y1: y(rows), y2: y(rows) }),
          svg("text", { x: LEFT - 6, y: y(rows) + 4, "text-anchor": "end" }, short(rows))]),
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
    const x = scale(from, to, width, 4);
    return [svg("rect", { class: "lane", x: 0, rx: 2, width, y: 2, height: 22 }),
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
      [0, done.length].map((count) => svg("text", { x: LEFT - 6, y: y(count) + 4, "text-anchor": "end" }, NUMBER.format(count))),
      timeAxis(from, to, x, height),
    ];
  });
};
