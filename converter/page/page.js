// The page of `vmprof-convert --to html`: draws what stands in #profile.  Names are
// data: they go into text nodes and attributes, and never into HTML.
import { brushX } from "d3-brush";
import flamegraph from "d3-flame-graph";
import { select } from "d3-selection";
import {
  CHANGES, ORIGINS, change, changeColour, colour, colourOf, element, isDark, signed, verdict,
} from "./looks.js";
import style from "./page.css";
import {
  addUp, compared, diff, functionRows, profile, share, shown, state, sums, treeOf, typeRows,
} from "./sums.js";

const MEASURES = [["bytes", "Bytes"], ["objects", "Objects"], ["alive", "Alive"]]
  .filter(([key]) => key !== "alive" || profile.has.lifetimes);
const SHAPES = [["icicle", "Icicle"], ["flame", "Flame graph"]];
const STACKS = [["plain", "Functions"], ["typed", "… and types"], ["by type", "By type"]];
const TABLES = [["functions", "Functions"], ["types", "Types"]];
const CELL = 20;

// Buttons of which one is pressed.
function choice(options, key, name) {
  return element("span", { class: "choice", role: "group", "aria-label": name },
    ...options.map(([value, text]) => element("button", {
      type: "button", "data-value": value, "aria-pressed": String(state[key] === value),
      onclick: (event) => {
        state[key] = value;
        for (const button of event.target.parentNode.children) {
          button.setAttribute("aria-pressed", String(button === event.target));
        }
        draw();
      },
    }, text)));
}

const tip = element("div", { class: "tip", role: "tooltip" });

function tooltip() {}
tooltip.show = (event, d) => {
  const { name, path, line, value, self } = d.data;
  const where = path + (line ? `:${line}` : "");
  tip.replaceChildren(element("b", {}, name), ...(where ? [element("span", {}, where)] : []),
    diff ? change(d.data) : `${shown(value)}, ${share(value, sums.whole)}`,
    element("span", {}, !diff && self && self !== value ? `itself ${shown(self)}` : ""));
  tip.style.display = "block";
  const { clientX: x, clientY: y } = event;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 18 + height < innerHeight ? y + 18 : Math.max(4, y - height - 10)}px`;
};
tooltip.hide = () => { tip.style.display = "none"; };

// ---------------------------------------------------------------------------
// the chart

const holder = element("div", { class: "scroll" });
const said = element("div", { class: "said", "aria-live": "polite" });
const back = element("button", { type: "button", class: "plain", hidden: "", onclick: () => {
  chart.resetZoom();
  back.hidden = true;
} }, "Zoom out");
let chart;

function matches(data, term) {
  const wanted = term.toLowerCase();
  return `${data.name} ${data.path}:${data.line}`.toLowerCase().includes(wanted);
}

function drawChart() {
  holder.replaceChildren();
  back.hidden = true;
  tooltip.hide();
  if (!sums.whole) {
    holder.append(element("div", { class: "nothing" }, "Nothing was allocated here."));
    said.replaceChildren();
    return;
  }
  const target = element("div");
  holder.append(target);
  chart = flamegraph().width(Math.max(240, holder.clientWidth - 2)).cellHeight(CELL)
    .minFrameSize(1).transitionDuration(0)
    .inverted(state.shape === "icicle")
    .sort((a, b) => b.data.value - a.data.value || (a.data.name < b.data.name ? -1 : 1))
    .tooltip(tooltip)
    .setColorMapper((d) => (d.highlight ? (isDark() ? "#ff5fb2" : "#f0459c")
      : colourOf(d.data)))
    .setSearchMatch((d, term) => Boolean(term) && matches(d.data, term))
    .setSearchHandler((found, sum) => say(found.length, sum))
    .setLabelHandler((d) => d.data.name)
    .onClick((d) => { back.hidden = !d.parent; });
  select(target).datum(treeOf()).call(chart);
  // what moves is what is zoomed, and not what is drawn anew
  chart.transitionDuration(
    matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 220);
  if (state.shape === "flame") holder.scrollTop = holder.scrollHeight;
  search();
}

function search() {
  if (!sums.whole) return;
  if (state.search) chart.search(state.search);
  else {
    chart.clear();
    say(-1, 0);
  }
}

function say(found, sum) {
  const whole = diff ? change(compared({}, "total", 0)) : shown(sums.whole);
  const parts = [element("b", {}, whole), " ", ({
    bytes: "allocated", objects: "objects allocated", alive: "still alive" })[state.measure]];
  if (state.type >= 0) parts.push(` of ${profile.types[state.type][0]}`);
  if (state.from || state.to < profile.steps) {
    parts.push(` from ${seconds(state.from)} to ${seconds(state.to)}`);
  }
  if (found >= 0) {
    parts.push(" · found: ", element("b", {}, diff ? String(found)
      : `${shown(sum)} (${share(sum, sums.whole)})`));
  }
  said.replaceChildren(...parts);
}

function seconds(step) {
  const time = profile.seconds * step / profile.steps;
  return `${time.toFixed(profile.seconds < 1 ? 3 : profile.seconds < 100 ? 2 : 0)} s`;
}

// ---------------------------------------------------------------------------
// the table

const body = element("tbody");
const headings = element("tr");
// What a row is sorted by
function size(row, key) {
  const data = row.sides[key];
  return diff ? data ? Math.abs(data.after - data.before) : 0 : row[key];
}

function cell(row, key) {
  if (!diff) return element("td", {}, row[key] ? shown(row[key]) : "-");
  const data = row.sides[key];
  const found = verdict(data);
  return element("td", { class: found, title: change(data) },
    data.after === data.before ? "-" : signed(data.after - data.before));
}

function drawTable() {
  const isTypes = state.table === "types";
  const rows = isTypes ? typeRows() : functionRows();
  const by = isTypes ? "self" : state.sort;
  rows.sort((a, b) => size(b, by) - size(a, by) || size(b, "total") - size(a, "total"));
  const columns = isTypes ? [["self", ""]] : [["self", "Self"], ["total", "Total"]];
  if (isTypes) columns[0][1] = ({ bytes: "Allocated", objects: "Objects", alive: "Alive" })[state.measure];
  headings.replaceChildren(element("th", { scope: "col" }, isTypes ? "Type" : "Function"),
    ...columns.map(([key, text]) => element("th", {
      scope: "col", ...(by === key ? { "aria-sort": "descending" } : {}),
    }, element("button", { type: "button", onclick: () => { state.sort = key; drawTable(); } }, text))));
  const most = rows.length ? size(rows[0], by) : 0;
  const all = isTypes ? sums.types.reduce((a, b) => a + b, 0) : sums.whole;
  body.replaceChildren(...rows.slice(0, 200).map((row) => {
    const made = element("tr", {
      tabindex: "0", title: [row.name, row.where,
        ...columns.map(([key]) => (diff ? "" : share(row[key], all)))].filter(Boolean).join("\n"),
      class: row.name === state.chosen ? "chosen" : "",
      onclick: () => pick(row),
      onkeydown: (event) => { if (event.key === "Enter") pick(row); },
    }, element("td", {}, row.name,
      ...(row.where ? [element("small", {}, element("bdi", {}, row.where))] : [])),
    ...columns.map(([key]) => cell(row, key)));
    const width = most ? 100 * size(row, by) / most : 0;
    const bar = diff ? changeColour(verdict(row.sides[by]), 1) : colour(row.origin);
    made.style.backgroundImage = `linear-gradient(${bar}, ${bar})`;
    made.style.backgroundSize = `${width.toFixed(2)}% 3px`;
    made.style.backgroundPosition = "0 100%";
    return made;
  }));
  if (rows.length > 200) {
    body.append(element("tr", {}, element("td", { colspan: "3" }, `… and ${rows.length - 200} more`)));
  }
}

// A function is searched for, of a type nothing else is shown; once more: all again.
function pick(row) {
  if ("type" in row) {
    state.type = state.type === row.type ? -1 : row.type;
    ofType.value = String(state.type);
    state.chosen = state.type < 0 ? null : row.name;
    draw();
    return;
  }
  state.chosen = state.chosen === row.name ? null : row.name;
  state.search = state.chosen === null ? "" : `${row.name} ${row.where}`;
  searched.value = state.search;
  drawTable();
  search();
}

// ---------------------------------------------------------------------------
// time

const timeline = element("div", { class: "panel time" });

function drawTime() {
  const width = Math.max(200, timeline.clientWidth - 24);
  const height = 74;
  const main = state.measure === "objects" ? "objects" : "bytes";
  const all = new Float64Array(profile.steps);
  const alive = new Float64Array(profile.steps);
  for (let row = 0; row < profile.step.length; row += 1) {
    if (state.type >= 0 && profile.type[row] !== state.type) continue;
    all[profile.step[row]] += profile[main][row];
    alive[profile.step[row]] += profile.alive[row];
  }
  const length = profile.seconds / profile.steps;
  const most = Math.max(...all, 1);
  const x = (step) => width * step / profile.steps;
  const area = (values) => `M0 ${height}${[...values].map((value, step) => {
    const y = (height - 14) * (1 - value / most) + 14;
    return `L${x(step).toFixed(1)} ${y.toFixed(1)}L${x(step + 1).toFixed(1)} ${y.toFixed(1)}`;
  }).join("")}L${width} ${height}Z`;
  timeline.replaceChildren(element("div", { class: "caption" },
    element("span", {}, state.measure === "objects" ? "objects" : "bytes",
      ` allocated over time, up to ${shown(most / length, main)}/s`),
    element("span", {}, key("var(--area)"), "all",
      ...(profile.has.lifetimes && main === "bytes" ? [key("var(--held)"), "still alive at the end"] : []))));
  const svg = select(timeline).append("svg").attr("height", height + 18)
    .attr("viewBox", `0 0 ${width} ${height + 18}`)
    .attr("role", "img").attr("aria-label", "allocation over time");
  svg.append("path").attr("class", "all").attr("d", area(all));
  if (main === "bytes" && profile.has.lifetimes) {
    svg.append("path").attr("class", "alive").attr("d", area(alive));
  }
  const ticks = Math.max(2, Math.min(8, Math.floor(width / 110)));
  for (let tick = 0; tick <= ticks; tick += 1) {
    const at = width * tick / ticks;
    svg.append("line").attr("class", "tick").attr("x1", at).attr("x2", at)
      .attr("y1", height).attr("y2", height + 4);
    svg.append("text").attr("x", at).attr("y", height + 15)
      .attr("text-anchor", tick === 0 ? "start" : tick === ticks ? "end" : "middle")
      .text(seconds(profile.steps * tick / ticks));
  }
  for (const [time, name] of profile.marks) {
    const at = width * Math.min(1, time / (profile.seconds || 1));
    const line = svg.append("line").attr("class", "mark").attr("x1", at).attr("x2", at)
      .attr("y1", 12).attr("y2", height);
    line.append("title").text(name);
    svg.append("text").attr("x", at + 3).attr("y", 10).text(name.slice(0, 20));
  }
  if (profile.steps < 2) return;
  const brush = brushX().extent([[0, 0], [width, height]]).on("end", (event) => {
    if (!event.sourceEvent) return;
    const [from, to] = event.selection ?? [0, width];
    state.from = Math.round(profile.steps * from / width);
    state.to = Math.max(state.from + 1, Math.round(profile.steps * to / width));
    draw();
  });
  const group = svg.append("g").call(brush);
  if (state.from || state.to < profile.steps) group.call(brush.move, [x(state.from), x(state.to)]);
}

function key(background) {
  const made = element("i", { class: "key" });
  made.style.background = background;
  return made;
}

// ---------------------------------------------------------------------------
// all of it

const searched = element("input", {
  type: "search", placeholder: "Search functions, files, types", "aria-label": "Search",
  oninput: (event) => {
    state.search = event.target.value.trim();
    state.chosen = null;
    search();
    drawTable();
  },
});
const ofType = element("select", { "aria-label": "Type", onchange: (event) => {
  state.type = Number(event.target.value);
  state.chosen = null;
  draw();
} }, element("option", { value: "-1" }, "All types"));
const legend = element("div", { class: "legend" });
const navigation = element("nav");

function drawLegend() {
  if (diff) {
    const more = { same: state.measure === "alive" ? ", or garbage" : "" };
    legend.replaceChildren(...Object.entries(CHANGES).map(([found, values]) => element(
      "span", {}, key(changeColour(found, 1)), values[2] + (more[found] ?? ""))));
    return;
  }
  const there = new Set(profile.frames.map((frame) => frame[3]));
  if (state.stacks !== "plain") there.add("type");
  legend.replaceChildren(...Object.entries(ORIGINS).filter(([origin]) => there.has(origin))
    .map(([origin, values]) => element("span", {}, key(colour(origin)), values[4])));
}

function draw() {
  addUp();
  if (!diff) drawTime();
  drawChart();
  drawTable();
  drawLegend();
}

function themed(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

function build() {
  document.head.append(element("style", {}, style));
  themed(matchMedia("(prefers-color-scheme: dark)").matches);
  const sorted = profile.types.map(([name], type) => [name, type])
    .sort(([a], [b]) => (a < b ? -1 : 1));
  ofType.append(...sorted.map(([name, type]) => element("option", { value: String(type) }, name)));
  for (const [value, text] of TABLES) {
    if (value === "types" && !profile.has.types) continue;
    navigation.append(element("button", {
      type: "button", "aria-pressed": String(state.table === value),
      onclick: (event) => {
        state.table = value;
        for (const button of navigation.children) {
          button.setAttribute("aria-pressed", String(button === event.target));
        }
        drawTable();
      },
    }, text));
  }
  const remarks = profile.remarks.length ? [element("details", { class: "remarks" },
    element("summary", {}, "What to know about these figures"),
    element("ul", {}, ...profile.remarks.map((line) => element("li", {}, line))))] : [];
  document.body.append(
    element("header", {}, element("h1", {}, profile.title),
      element("p", {}, `${profile.head} ${profile.sums}`)), ...remarks,
    element("div", { class: "bar" }, choice(MEASURES, "measure", "What is counted"),
      choice(SHAPES, "shape", "Shape"),
      ...(profile.has.types ? [choice(STACKS, "stacks", "Stacks"), ofType] : []), searched, back,
      element("button", { type: "button", class: "plain push", "aria-label": "Light or dark",
        onclick: () => { themed(!isDark()); draw(); } }, "◐")),
    ...(diff ? [] : [timeline]),
    element("div", { class: "split" },
      element("div", { class: "panel chart" }, said, holder, legend),
      element("div", { class: "panel side" }, navigation, element("div", { class: "scroll" },
        element("table", {}, element("thead", {}, headings), body)))),
    element("footer", {}, diff ? "A function is as wide as the larger one of both, and its colour as full "
      + "as the share of it that changed. " : "Drag over the time to choose a part of it. ",
    `Click a function to zoom, a row to find it. Functions of less than ${100 * profile.smallest} % count for who calls them. `
      + "This file is complete: it loads nothing from anywhere."), tip);
  draw();
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) {
      width = innerWidth;
      draw();
    }
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !back.hidden) back.click();
    if (event.key === "/" && document.activeElement !== searched) {
      event.preventDefault();
      searched.focus();
    }
  });
}

build();
