// The profile of the element #profile, the page's state, and the sums that the page draws.
const profile = JSON.parse(document.getElementById("profile").textContent);
// For a difference, the figures of the first side and the variances; the figures of the
// profile are the figures of the second side. Null for a single profile.
const diff = profile.diff ?? null;

const state = {
  measure: "bytes", shape: "icicle", stacks: "plain", table: "functions",
  search: "", type: -1, from: 0, to: profile.steps, sort: "self", chosen: null,
  // the view that the command line selected
  ...profile.begin,
};
const count = profile.parent.length;
// For each node, whether it has no caller with the same function. The totals of these nodes
// add up to the total of the function.
const outermost = profile.frame.map((frame, node) => {
  for (let above = profile.parent[node]; above > 0; above = profile.parent[above]) {
    if (profile.frame[above] === frame) return false;
  }
  return true;
});

// ---------------------------------------------------------------------------
// numbers

function scaled(number, units, base) {
  let power = 0;
  while (power < units.length - 1 && Math.abs(number) >= 0.9995 * base) {
    number /= base;
    power += 1;
  }
  const digits = number >= 99.95 || Number.isInteger(number) ? 0 : number >= 9.995 ? 1 : 2;
  return [number.toFixed(digits), units[power]];
}

function shown(number, measure = state.measure) {
  return measure === "objects"
    ? scaled(number, ["", "k", "M", "G"], 1000).join("")
    : scaled(number, ["B", "KiB", "MiB", "GiB", "TiB"], 1024).join(" ");
}

// Returns the time of a step since the start, as text.
function seconds(step) {
  const time = profile.seconds * step / profile.steps;
  return `${time.toFixed(profile.seconds < 1 ? 3 : profile.seconds < 100 ? 2 : 0)} s`;
}

function share(part, whole) {
  return whole ? `${(100 * part / whole).toFixed(1)} %` : "";
}

// ---------------------------------------------------------------------------
// sums

// Returns the value of a row of the profile's table, which determines the width of frames.
// For a difference, this is the larger side, so that the page also shows functions that the
// second side lacks.
const valueOf = (row) => (diff ? Math.max(profile[state.measure][row], diff.before[state.measure][row])
  : profile[state.measure][row]);
const SIDES = diff ? {
  before: (row) => diff.before[state.measure][row],
  after: (row) => profile[state.measure][row],
  variance: (row) => diff.variance[state.measure][row],
  // the value in each run; the runs of the second side come first
  ...Object.fromEntries((diff.runs ?? []).map((run, number) => [
    `run ${number}`, (row) => run[state.measure][row]])),
} : {};

let sums;

// Computes all sums anew for the current state.
function addUp() {
  sums = added(valueOf);
  for (const [side, value] of Object.entries(SIDES)) sums[side] = added(value);
}

// Returns the sums of the rows that `state` selects: by node, by type, and by both.
function added(value) {
  const own = new Float64Array(count);
  const types = new Float64Array(profile.types.length);
  const pairs = new Map();
  let whole = 0;
  for (let row = 0; row < profile.step.length; row += 1) {
    const step = profile.step[row];
    if (step < state.from || step >= state.to) continue;
    const type = profile.type[row];
    const part = value(row);
    types[type] += part;
    if (state.type >= 0 && type !== state.type) continue;
    const node = profile.node[row];
    own[node] += part;
    whole += part;
    const key = node * profile.types.length + type;
    pairs.set(key, (pairs.get(key) ?? 0) + part);
  }
  const total = Float64Array.from(own);
  for (let node = count - 1; node > 0; node -= 1) total[profile.parent[node]] += total[node];
  return { own, total, types, pairs, whole };
}

function frameNode(node, value) {
  const [name, path, line, origin] = profile.frames[profile.frame[node]];
  return { name, path, line, origin, value, self: 0, children: [] };
}

function typeNode(type, value) {
  const [name, kind] = profile.types[type];
  return { name, path: "", line: 0, origin: "type", kind, value, self: value, children: [] };
}

// Adds the sums of both sides of a difference to a node of the chart, or to a row.
function compared(data, part, index) {
  for (const side of Object.keys(SIDES)) {
    const sum = sums[side][part];
    data[side] = (data[side] ?? 0) + (sum instanceof Map ? sum.get(index) ?? 0 : sum[index]);
  }
  return data;
}

function treeOf() {
  const root = compared(frameNode(0, sums.whole), "total", 0);
  if (state.stacks === "by type") {
    const parts = new Map();
    for (const [key, value] of sums.pairs) {
      if (!value) continue;
      const type = key % profile.types.length;
      let made = parts.get(type);
      if (!made) {
        made = new Map([[0, typeNode(type, 0)]]);
        made.get(0).self = 0;
        parts.set(type, made);
        root.children.push(made.get(0));
      }
      const node = Math.floor(key / profile.types.length);
      const path = [];
      for (let above = node; above > 0; above = profile.parent[above]) path.push(above);
      let inside = made.get(0);
      inside.value += value;
      compared(inside, "pairs", key);
      for (const one of path.reverse()) {
        let child = made.get(one);
        if (!child) {
          child = frameNode(one, 0);
          made.set(one, child);
          inside.children.push(child);
        }
        child.value += value;
        compared(child, "pairs", key);
        inside = child;
      }
      inside.self += value;
    }
    return root;
  }
  const nodes = [root];
  root.self = sums.own[0];
  for (let node = 1; node < count; node += 1) {
    if (!sums.total[node]) continue;
    nodes[node] = compared(frameNode(node, sums.total[node]), "total", node);
    nodes[node].self = sums.own[node];
    nodes[profile.parent[node]].children.push(nodes[node]);
  }
  if (state.stacks === "typed") {
    for (const [key, value] of sums.pairs) {
      if (value) {
        nodes[Math.floor(key / profile.types.length)].children.push(
          compared(typeNode(key % profile.types.length, value), "pairs", key));
      }
    }
  }
  return root;
}

function functionRows() {
  const rows = new Map();
  for (let node = 1; node < count; node += 1) {
    if (!sums.total[node]) continue;
    const frame = profile.frame[node];
    let row = rows.get(frame);
    if (!row) {
      const [name, path, line, origin] = profile.frames[frame];
      row = { name, where: path + (line ? `:${line}` : ""), origin, self: 0, total: 0,
        sides: { self: {}, total: {} } };
      rows.set(frame, row);
    }
    row.self += sums.own[node];
    compared(row.sides.self, "own", node);
    if (outermost[node]) {
      row.total += sums.total[node];
      compared(row.sides.total, "total", node);
    }
  }
  return [...rows.values()];
}

function typeRows() {
  return profile.types.map(([name], type) => ({
    name, where: "", origin: "type", type, self: sums.types[type], total: 0,
    sides: { self: compared({}, "types", type) },
  })).filter((row) => row.self);
}
