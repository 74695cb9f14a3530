// Opens a page as a browser does, without rendering: node page.mjs PAGE.html MODULES
// [ACTION ...].  Prints the elements, errors and loaded addresses as JSON.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [file, modules, ...actions] = process.argv.slice(2);
const { JSDOM, VirtualConsole } = createRequire(pathToFileURL(modules + "/"))("jsdom");
const errors = [];
const loaded = [];
const console_ = new VirtualConsole();
console_.on("jsdomError", (error) => errors.push(String(error)));
console_.on("error", (error) => errors.push(String(error)));
const { window } = new JSDOM(readFileSync(file, "utf8"), {
  runScripts: "dangerously", pretendToBeVisual: true, virtualConsole: console_,
  beforeParse(made) {
    // the system's settings: reduced motion, and a light theme
    made.matchMedia = (query) => ({ matches: query.includes("reduce") });
    made.alert = (text) => errors.push(`alert: ${text}`);
    made.fetch = (address) => loaded.push(String(address));
  },
});
const { document } = window;
for (const action of actions) {
  const [kind, text] = [action.slice(0, 6), action.slice(6)];
  if (kind === "press ") {
    [...document.querySelectorAll("button")].find((b) => b.textContent === text).click();
  } else if (kind === "write ") {
    const input = document.querySelector("input");
    input.value = text;
    input.dispatchEvent(new window.Event("input"));
  } else if (kind === "zoom: ") {
    document.querySelector(`.frame[name="${text}"]`).click();
  } else if (kind === "drag: ") {
    const [from, to] = text.split(" ").map(Number);
    for (const [event, clientX] of [["down", from], ["move", to], ["up", to]]) {
      document.querySelector(".time svg").dispatchEvent(new window.MouseEvent(
        `pointer${event}`, { clientX, bubbles: true }));
    }
  }
}
await new Promise((resolve) => { setTimeout(resolve, 700); });
const texts = (selector) => [...document.querySelectorAll(selector)].map(
  (found) => found.textContent);

// Return the hue of `rgb(...)` in degrees, by the usual formula for HSL
function hue(colour) {
  const [red, green, blue] = colour.match(/\d+/g).map(Number);
  const most = Math.max(red, green, blue);
  const range = most - Math.min(red, green, blue);
  return 60 * (most === red ? (green - blue) / range
    : most === green ? 2 + (blue - red) / range : 4 + (red - green) / range);
}

// Whole numbers of red, green and blue change a pale hue by some degrees
function nearest(hues, wanted) {
  return hues.reduce((a, b) => (Math.abs(a - wanted) <= Math.abs(b - wanted) ? a : b));
}

process.stdout.write(JSON.stringify({
  errors, loaded, title: document.title,
  frames: [...document.querySelectorAll(".frame")].map((found) => found.getAttribute("name")),
  // the change that a frame's colour shows: look.js has these hues
  changes: Object.fromEntries([...document.querySelectorAll(".frame")].map((found) => [
    found.getAttribute("name"), { 14: "grew", 212: "shrank", 30: "same" }[
      nearest([14, 30, 212], hue(found.style.backgroundColor))]])),
  cells: [...document.querySelectorAll(".side tbody td[class]")].map((cell) => cell.className),
  callers: [...document.querySelectorAll(".caller")].map((found) => found.getAttribute("name")),
  found: [...document.querySelectorAll(".found")].map((found) => found.getAttribute("name")),
  said: texts(".said")[0],
  legend: texts(".legend > span"),
  header: texts("header p")[0],
  rows: [...document.querySelectorAll(".side tbody tr")].map((row) => (
    [...row.children].map((cell) => cell.firstChild?.textContent ?? ""))),
  held: [...document.querySelectorAll(".held")].map((found) => ({
    texts: [...found.querySelectorAll("h2, p")].map((text) => text.textContent),
    rows: [...found.querySelectorAll("tr")].map((row) => (
      [...row.children].map((cell) => cell.textContent))) })),
  elements: [...new Set([...document.querySelectorAll("*")].map((found) => found.localName))],
  scripts: document.scripts.length,
}));
window.close();
