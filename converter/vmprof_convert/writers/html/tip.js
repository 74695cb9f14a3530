// The tooltip: a text next to the mouse pointer about the frame under the pointer.
const tip = element("div", { class: "tip", role: "tooltip" });

function showTip(event, { name, path, line, value, self, ...data }) {
  const where = path + (line ? `:${line}` : "");
  tip.replaceChildren(element("b", {}, name), ...(where ? [element("span", {}, where)] : []),
    diff ? change(data) : `${shown(value)}, ${share(value, sums.whole)}`,
    element("span", {}, !diff && self && self !== value ? `itself ${shown(self)}` : ""));
  tip.style.display = "block";
  const { clientX: x, clientY: y } = event;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 18 + height < innerHeight ? y + 18 : Math.max(4, y - height - 10)}px`;
}

function hideTip() { tip.style.display = "none"; }
