// Opens a page as a browser does, but for its looks: node page.mjs PAGE.html.  Prints
// what is drawn, what it complains of and what it loads, as JSON.
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
    // what it asks the system: nothing moves, and it is light
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
  }
}
await new Promise((resolve) => { setTimeout(resolve, 700); });
const texts = (selector) => [...document.querySelectorAll(selector)].map(
  (found) => found.textContent);
process.stdout.write(JSON.stringify({
  errors, loaded, title: document.title,
  frames: [...document.querySelectorAll(".frame")].map((found) => found.getAttribute("name")),
  // of a difference, what the colour says: the hue that looks.js has for it
  changes: Object.fromEntries([...document.querySelectorAll(".frame")].map((found) => [
    found.getAttribute("name"), { 14: "grew", 212: "shrank", 30: "same" }[
      /^hsl\((\d+)/.exec(found.querySelector("rect").getAttribute("fill"))?.[1]]])),
  cells: [...document.querySelectorAll("tbody td[class]")].map((cell) => cell.className),
  said: texts(".said")[0],
  legend: texts(".legend > span"),
  header: texts("header p")[0],
  rows: [...document.querySelectorAll("tbody tr")].map((row) => (
    [...row.children].map((cell) => cell.firstChild?.textContent ?? ""))),
  elements: [...new Set([...document.querySelectorAll("*")].map((found) => found.localName))],
  scripts: document.scripts.length,
}));
window.close();
