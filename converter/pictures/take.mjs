// Take pictures of a profile in the Firefox Profiler, with Debian's Chromium:
//     node take.mjs PROFILE.json.gz FOLDER PROFILER
// PROFILER is the URL of the Profiler.  The profile does not leave this machine: this
// program sends it to the browser, under a domain name that cannot exist.
import { readFile } from "node:fs/promises";
import { gunzipSync } from "node:zlib";
import { chromium } from "playwright-core";

const [file, folder, profiler] = process.argv.slice(2);
const ADDRESS = "https://profile.invalid/profile.json";
// The name of each picture, and the panel and its options in the Profiler's URL.
const VIEWS = [
  ["flame-graph", "flame-graph/?ctSummary=native-allocations"],
  ["types", "calltree/?ctSummary=native-retained-allocations&invertCallstack"],
];

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update",
    "--disable-sync"],
});
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 720 } });
  const problems = [];
  // The Profiler cannot set up its cache for offline use here, but does not need it.
  page.on("pageerror", (error) => {
    if (!error.message.includes("ServiceWorker")) problems.push(error.message);
  });
  const body = gunzipSync(await readFile(file));
  await page.route(ADDRESS, (route) => route.fulfill({
    body, contentType: "application/json",
    headers: { "Access-Control-Allow-Origin": "*" },
  }));
  for (const [name, view] of VIEWS) {
    await page.goto(
      `${profiler}/from-url/${encodeURIComponent(ADDRESS)}/${view}`);
    await page.waitForSelector(".flameGraphContent, .treeViewBody");
    // The Profiler draws the tracks when the browser is idle.
    await page.waitForTimeout(3000);
    await page.screenshot({ path: `${folder}/${name}.png` });
  }
  if (problems.length) throw new Error(problems.join("\n"));
} finally {
  await browser.close();
}
