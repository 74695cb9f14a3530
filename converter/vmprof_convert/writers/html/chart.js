// A flame graph or an icicle. Only frames that are at least a pixel wide have an element, so
// that a page with ten thousand frames is as fast as a page with ten.
const CELL = 20;

// Compares siblings for sorting: the widest comes first, then the first name.
function inOrder(a, b) {
  if (a.data.value !== b.data.value) return b.data.value - a.data.value;
  return a.data.name < b.data.name ? -1 : 1;
}

// Returns the tree of frames with their positions, `left` and `right`, as shares of the
// width. There is no recursion, because the stacks may be deeper than the browser's stack.
function placed(data) {
  const root = { data, parent: null, depth: 0, left: 0, right: 1, children: [] };
  const waiting = [root];
  while (waiting.length) {
    const node = waiting.pop();
    node.children = node.data.children.map((child) => (
      { data: child, parent: node, depth: node.depth + 1, children: [] })).sort(inOrder);
    let at = node.left;
    for (const child of node.children) {
      child.left = at;
      at += child.data.value / data.value;
      child.right = at;
      waiting.push(child);
    }
  }
  return root;
}

class Chart {
  // `data` has the properties name, value and children. `colour(data)` returns the colour
  // of a frame that a search has not found. `onZoom(isZoomed)` is called after each zoom.
  constructor(target, data, { width, isFlame, colour, onZoom }) {
    Object.assign(this, { target, width, isFlame, colour, onZoom });
    this.root = placed(data);
    this.zoomed = this.root;
    this.found = new Set();
    this.elements = new Map();
    this.frameOf = new WeakMap();
    target.className = "frames";
    target.addEventListener("click", (event) => {
      const node = this.frameOf.get(event.target);
      if (node) this.zoom(node);
    });
    target.addEventListener("mousemove", (event) => {
      const node = this.frameOf.get(event.target);
      if (node) showTip(event, node.data);
      else hideTip();
    });
    target.addEventListener("mouseleave", hideTip);
    this.draw();
  }

  zoom(node = this.root) {
    this.zoomed = node;
    hideTip();
    this.draw();
    this.onZoom(node !== this.root);
  }

  // Marks the frames for which `matches(data)` is true. Returns their number and their sum.
  // A frame below another marked frame does not add to the sum.
  search(matches) {
    this.found.clear();
    let sum = 0;
    const waiting = [[this.root, false]];
    while (waiting.length) {
      const [node, isBelow] = waiting.pop();
      const isFound = matches(node.data);
      if (isFound) {
        this.found.add(node);
        if (!isBelow) sum += node.data.value;
      }
      for (const child of node.children) waiting.push([child, isBelow || isFound]);
    }
    this.draw();
    return { count: this.found.size, sum };
  }

  draw() {
    const { left, right } = this.zoomed;
    const scale = this.width / (right - left);
    const callers = new Set();
    for (let above = this.zoomed.parent; above; above = above.parent) callers.add(above);
    const before = this.elements;
    this.elements = new Map();
    const waiting = [this.root];
    let deepest = 0;
    while (waiting.length) {
      const node = waiting.pop();
      // the callers of the zoomed frame fill the width
      const from = Math.max(0, (node.left - left) * scale);
      const to = Math.min(this.width, (node.right - left) * scale);
      if (to - from < 1) continue;
      deepest = Math.max(deepest, node.depth);
      const made = before.get(node) ?? this.element(node);
      before.delete(node);
      this.elements.set(node, made);
      const isFound = this.found.has(node);
      made.className = `frame${callers.has(node) ? " caller" : ""}${isFound ? " found" : ""}`;
      made.style.left = `${from.toFixed(1)}px`;
      made.style.width = `${(to - from).toFixed(1)}px`;
      made.style.backgroundColor = this.colour(node.data);
      made.textContent = to - from < 25 ? "" : node.data.name;
      waiting.push(...node.children);
    }
    for (const gone of before.values()) gone.remove();
    for (const made of this.elements.values()) if (!made.isConnected) this.target.append(made);
    this.target.style.height = `${(deepest + 1) * CELL}px`;
  }

  element(node) {
    const made = element("div", { name: node.data.name });
    made.style[this.isFlame ? "bottom" : "top"] = `${node.depth * CELL}px`;
    this.frameOf.set(made, node);
    return made;
  }
}
