// The page of `vmprof-convert flamegraph`, which draws the profile of the element #profile.
// Names are data: they are written to text nodes and attributes, and never to HTML.
const ALIVE = profile.alive_word[0].toUpperCase() + profile.alive_word.slice(1);
const MEASURES = [["bytes", "Bytes"], ["objects", "Objects"], ["alive", ALIVE]]
  .filter(([key]) => key !== "alive" || profile.has.lifetimes);
const SHAPES = [["icicle", "Icicle"], ["flame", "Flame graph"]];
const STACKS = [["plain", "Functions"], ["typed", "… and types"], ["by type", "By type"]];
const TABLES = [["functions", "Functions"], ["types", "Types"]];

// Returns a group of buttons that set the property `key` of `state`. The button of the present
// value is pressed.
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

// ---------------------------------------------------------------------------
// the chart

const holder = element("div", { class: "scroll" });
const said = element("div", { class: "said", "aria-live": "polite" });
const back = element("button", {
  type: "button", class: "plain", hidden: "", onclick: () => chart.zoom(),
}, "Zoom out");
let chart;

function matches(data, term) {
  const wanted = term.toLowerCase();
  return `${data.name} ${data.path}:${data.line}`.toLowerCase().includes(wanted);
}

function drawChart() {
  holder.replaceChildren();
  back.hidden = true;
  hideTip();
  if (!sums.whole) {
    holder.append(element("div", { class: "nothing" }, "Nothing was allocated here."));
    said.replaceChildren();
    return;
  }
  const target = element("div");
  holder.append(target);
  chart = new Chart(target, treeOf(), {
    width: Math.max(240, holder.clientWidth - 2), isFlame: state.shape === "flame",
    colour: colourOf, onZoom: (isZoomed) => { back.hidden = !isZoomed; },
  });
  if (state.shape === "flame") holder.scrollTop = holder.scrollHeight;
  search();
}

function search() {
  if (!sums.whole) return;
  const term = state.search;
  const { count, sum } = chart.search((data) => Boolean(term) && matches(data, term));
  say(term ? count : -1, sum);
}

function say(found, sum) {
  const whole = diff ? change(compared({}, "total", 0)) : shown(sums.whole);
  const parts = [element("b", {}, whole), " ", ({
    bytes: "allocated", objects: "objects allocated", alive: STILL_ALIVE })[state.measure]];
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

// ---------------------------------------------------------------------------
// the table

const body = element("tbody");
const headings = element("tr");
// Returns the number by which a row of the table is sorted.
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
  if (isTypes) columns[0][1] = ({ bytes: "Allocated", objects: "Objects", alive: ALIVE })[state.measure];
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

// Searches for the row's function, or shows only the row's type. A second click undoes this.
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
// the retainers, as in the report, if the profile has them

function heldTable(table) {
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...table.columns.map(([title, kind]) => (
      element("th", { scope: "col", class: kind }, title))))),
    element("tbody", {}, ...table.rows.map((row) => element("tr", {}, ...row.map(
      (text, number) => element("td", { class: table.columns[number][1] }, text)))))),
  ...(table.rest ? [element("p", {}, table.rest)] : []));
}

function heldSection(sheet) {
  return element("section", { class: "panel held" }, element("h2", {}, "Retainers"),
    ...sheet.head.map((line) => element("p", {}, line)), ...sheet.tables.map(heldTable),
    ...sheet.notes.map((line) => element("p", {}, line)));
}

// ---------------------------------------------------------------------------
// the whole page

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
    const more = { same: state.measure === "alive" && diff.exact.includes(false) ? ", or garbage" : "" };
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
  if (!diff) drawTime(draw);
  drawChart();
  drawTable();
  drawLegend();
}

function themed(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

function build() {
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
    element("summary", {}, "Notes on these figures"),
    element("ul", {}, ...profile.remarks.map((line) => element("li", {}, line))))] : [];
  document.body.append(
    element("header", {}, element("h1", {}, profile.title),
      element("p", {}, `${profile.head} ${profile.sums}`)), ...remarks,
    element("div", { class: "bar" }, choice(MEASURES, "measure", "Measure"),
      choice(SHAPES, "shape", "Shape"),
      ...(profile.has.types ? [choice(STACKS, "stacks", "Stacks"), ofType] : []), searched,
      element("button", { type: "button", class: "plain push", "aria-label": "Light or dark",
        onclick: () => { themed(!isDark()); draw(); } }, "◐")),
    ...(diff ? [] : [timeline]),
    element("div", { class: "split" },
      element("div", { class: "panel chart" }, said, back, holder, legend),
      element("div", { class: "panel side" }, navigation, element("div", { class: "scroll" },
        element("table", {}, element("thead", {}, headings), body)))),
    ...(profile.held ?? []).map(heldSection),
    element("footer", {}, diff ? "A function is as wide as its larger side, and its colour is stronger "
      + "if a larger share of it changed. " : "Drag over the time to choose a part of it. ",
    `Click a function to zoom, or a row to find it. The bytes of functions with less than ${100 * profile.smallest} % are attributed to their callers. `
      + "This file is complete, and loads nothing."), tip);
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
