// The allocations over time. Dragging over them selects a period.
const timeline = element("div", { class: "panel time" });

// The name of the live objects, some of which may be garbage without a heap snapshot.
const STILL_ALIVE = profile.alive_word === "alive" ? "still alive" : profile.alive_word;

// Returns the allocated bytes or objects of each step, and the bytes that count as alive.
function perStep(measure) {
  const all = new Float64Array(profile.steps);
  const alive = new Float64Array(profile.steps);
  for (let row = 0; row < profile.step.length; row += 1) {
    if (state.type >= 0 && profile.type[row] !== state.type) continue;
    all[profile.step[row]] += profile[measure][row];
    alive[profile.step[row]] += profile.alive[row];
  }
  return { all, alive };
}

function svgElement(kind, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Draws the timeline. `onChoice()` is called after state.from or state.to changed.
function drawTime(onChoice) {
  const width = Math.max(200, timeline.clientWidth - 24);
  const height = 74;
  const measure = state.measure === "objects" ? "objects" : "bytes";
  const hasAlive = profile.has.lifetimes && measure === "bytes";
  const { all, alive } = perStep(measure);
  const most = all.reduce((a, b) => Math.max(a, b), 1);
  const x = (step) => width * step / profile.steps;
  const area = (values) => `M0 ${height}${[...values].map((value, step) => {
    const y = (height - 14) * (1 - value / most) + 14;
    return `L${x(step).toFixed(1)} ${y.toFixed(1)}L${x(step + 1).toFixed(1)} ${y.toFixed(1)}`;
  }).join("")}L${width} ${height}Z`;
  const svg = svgElement("svg", {
    height: height + 18, viewBox: `0 0 ${width} ${height + 18}`, role: "img",
    "aria-label": "allocation over time",
  }, svgElement("path", { class: "all", d: area(all) }),
  ...(hasAlive ? [svgElement("path", { class: "alive", d: area(alive) })] : []));
  const ticks = Math.max(2, Math.min(8, Math.floor(width / 110)));
  for (let tick = 0; tick <= ticks; tick += 1) {
    const at = width * tick / ticks;
    svg.append(svgElement("line", { class: "tick", x1: at, x2: at, y1: height, y2: height + 4 }),
      svgElement("text", { x: at, y: height + 15,
        "text-anchor": tick === 0 ? "start" : tick === ticks ? "end" : "middle",
      }, seconds(profile.steps * tick / ticks)));
  }
  for (const [time, name] of profile.marks) {
    const at = width * Math.min(1, time / (profile.seconds || 1));
    svg.append(svgElement("line", { class: "mark", x1: at, x2: at, y1: 12, y2: height },
      svgElement("title", {}, name)),
    svgElement("text", { x: at + 3, y: 10 }, name.slice(0, 20)));
  }
  timeline.replaceChildren(element("div", { class: "caption" },
    element("span", {}, measure, ` allocated over time, up to ${
      shown(most / (profile.seconds / profile.steps), measure)}/s`),
    element("span", {}, key("var(--area)"), "all",
      ...(hasAlive ? [key("var(--held)"), STILL_ALIVE + (profile.alive_word === "alive" ? " at the end" : "")] : []))), svg);
  if (profile.steps > 1) makeChoosable(svg, width, height, onChoice);
}

// Makes a period selectable: dragging selects a period, dragging the selection moves it, and
// a click selects the whole run.
function makeChoosable(svg, width, height, onChoice) {
  const chosen = svgElement("rect", { class: "selection", y: 0, height });
  svg.append(chosen);
  let [from, to] = [state.from, state.to];
  const isPart = () => from > 0 || to < profile.steps;
  const draw = () => {
    chosen.setAttribute("x", width * from / profile.steps);
    chosen.setAttribute("width", isPart() ? width * (to - from) / profile.steps : 0);
  };
  const stepAt = (event) => Math.max(0, Math.min(profile.steps,
    profile.steps * (event.clientX - svg.getBoundingClientRect().left) / width));
  draw();
  svg.addEventListener("pointerdown", (down) => {
    if (down.button !== 0) return;
    down.preventDefault();
    const start = stepAt(down);
    const length = to - from;
    const grip = isPart() && from < start && start < to ? start - from : null;
    const move = (event) => {
      const now = stepAt(event);
      if (grip === null) {
        [from, to] = [Math.floor(Math.min(start, now)), Math.ceil(Math.max(start, now))];
        if (from === to) to += 1;
      } else {
        from = Math.round(Math.max(0, Math.min(profile.steps - length, now - grip)));
        to = from + length;
      }
      draw();
    };
    const end = (event) => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
      if (Math.abs(event.clientX - down.clientX) < 3) [from, to] = [0, profile.steps];
      [state.from, state.to] = [from, to];
      onChoice();
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
  });
}
