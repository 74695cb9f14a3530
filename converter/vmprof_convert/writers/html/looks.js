// The colours of frames, and the verdicts on changes.

// For each origin of a function: hue, saturation, lightness in the light theme, lightness in
// the dark theme, and the text of the legend
const ORIGINS = {
  program: [28, 88, 70, 62, "the program"],
  "installed packages": [196, 52, 70, 60, "installed packages"],
  "standard library": [262, 42, 77, 68, "standard library"],
  "import machinery": [48, 30, 74, 62, "imports"],
  "built-in": [210, 8, 76, 62, "built-in"],
  nowhere: [30, 6, 84, 66, "none of these"],
  type: [145, 34, 70, 58, "types"],
};
const equalToo = diff?.unknown ? " (equal runs differ, too)" : "";
const CHANGES = {
  grew: [14, 78, equalToo ? `more${equalToo}` : "grew"],
  shrank: [212, 62, equalToo ? `less${equalToo}` : "shrank"],
  same: [30, 6, "may be chance"],
};

function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

function tint(name) {
  let hash = 0;
  for (const character of name) hash = (hash * 31 + character.codePointAt(0)) % 1009;
  return hash / 1009 - 0.5;
}

function colour(origin, name = "") {
  const [hue, saturation, light, dark] = ORIGINS[origin] ?? ORIGINS.nowhere;
  const shift = name ? tint(name) : 0;
  return `hsl(${hue + 10 * shift} ${saturation}% ${(isDark() ? dark : light) + 10 * shift}%)`;
}

// Returns the variance of a change. With several runs per side, this is the variance
// between the runs of a side, with the sampling variance as its prior (see spread.py).
function varianceOf(data) {
  if (!diff.runs) return data.variance;
  const [before, after] = diff.counts;
  const perRun = 1 / before + 1 / after;
  const sampling = data.variance / perRun;
  let squares = 0;
  diff.runs.forEach((_, run) => {
    squares += (data[`run ${run}`] - (run < after ? data.after : data.before)) ** 2;
  });
  return perRun * Math.max(sampling, (diff.prior * sampling + squares)
    / (diff.prior + before + after - 2));
}

// Returns "grew", "shrank", or "same" if equal runs may differ as much.
function verdict(data) {
  if (!isBeyondChance(data)) return "same";
  const hasGrown = data.after > data.before;
  // the larger side may contain garbage
  if (state.measure === "alive" && !diff.exact[hasGrown ? 1 : 0]) return "same";
  return hasGrown ? "grew" : "shrank";
}

function isBeyondChance(data) {
  return Math.abs(data.after - data.before) > diff.z * Math.sqrt(varianceOf(data));
}

function changeColour(found, share) {
  const [hue, saturation] = CHANGES[found];
  if (found === "same") return `hsl(${hue} ${saturation}% ${isDark() ? 66 : 86}%)`;
  const [pale, full] = isDark() ? [72, 52] : [86, 58];
  return `hsl(${hue} ${saturation}% ${pale + (full - pale) * Math.min(1, share)}%)`;
}

function colourOf(data) {
  if (!diff) return colour(data.origin, data.name);
  const share = Math.abs(data.after - data.before) / (Math.max(data.after, data.before) || 1);
  return changeColour(verdict(data), share);
}

function signed(number) {
  return (number < 0 ? "\u2212" : "+") + shown(Math.abs(number));
}

// Returns a text like "1 MiB → 3 MiB (+2 MiB)", which mentions possible chance or garbage.
function change(data) {
  const doubt = verdict(data) !== "same" || data.after === data.before ? ""
    : isBeyondChance(data) ? ", may be garbage" : ", may be chance";
  return `${shown(data.before)} → ${shown(data.after)} (${signed(data.after - data.before)}${doubt})`;
}

// Returns a small square of a colour for a legend.
function key(background) {
  const made = element("i", { class: "key" });
  made.style.background = background;
  return made;
}

function element(kind, attributes = {}, ...children) {
  const made = document.createElement(kind);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}
