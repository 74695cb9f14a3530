// Take pictures of a profile in the HTML page, speedscope, pprof, DevTools and
// flamegraph.pl's SVG, with Debian's Chromium:
//     node viewers.mjs PROFILE FOLDER
// The files PROFILE.html, PROFILE-diff.html, PROFILE.speedscope.json, PROFILE.pb.gz,
// PROFILE.heapprofile and PROFILE.svg have to exist.  All requests stay on this machine.
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [profile, folder] = process.argv.slice(2).map((name) => resolve(name));
const PORT = 8173;
const DEVTOOLS_PORT = 8174;
const speedscope = resolve(dirname(createRequire(import.meta.url).resolve(
  "speedscope/package.json")), "dist/release/index.html");

// Open speedscope with a script that loads the profile, like speedscope's own command.
async function inSpeedscope(page) {
  const data = await readFile(`${profile}.speedscope.json`);
  const script = `${profile}.speedscope.js`;
  await writeFile(script,
    `speedscope.loadFileFromBase64("shop", "${data.toString("base64")}")`);
  await page.goto(`${pathToFileURL(speedscope)}#localProfilePath=${script}`);
  await page.waitForTimeout(3000);
  await page.keyboard.press("2");     // the view "left heavy"
}

async function inPprof(page) {
  const server = spawn("go", ["tool", "pprof", "-no_browser",
    `-http=127.0.0.1:${PORT}`, `${profile}.pb.gz`], { detached: true, stdio: "ignore" });
  try {
    for (let tries = 0; ; tries += 1) {
      try {
        await page.goto(`http://127.0.0.1:${PORT}/ui/flamegraph`);
        break;
      } catch (error) {
        // The first start compiles pprof, which can take minutes.
        if (tries === 600) throw error;
        await page.waitForTimeout(1000);
      }
    }
    await page.waitForTimeout(2000);
    return await page.screenshot({ path: `${folder}/pprof.png` });
  } finally {
    // Kill the command and the processes that it has started.
    process.kill(-server.pid);
  }
}

// Load the profile into the DevTools of an empty page, which the browser serves over HTTP.
async function inDevTools(page) {
  const address = `127.0.0.1:${DEVTOOLS_PORT}`;
  const empty = await browser.newPage();
  const session = await empty.context().newCDPSession(empty);
  const { targetInfo } = await session.send("Target.getTargetInfo");
  await page.goto(`http://${address}/devtools/devtools_app.html?` +
    `ws=${address}/devtools/page/${targetInfo.targetId}&panel=heap-profiler`);
  const choosing = page.waitForEvent("filechooser");
  await page.getByText("Load profile").click();
  await (await choosing).setFiles(`${profile}.heapprofile`);
  await page.getByRole("treeitem", { name: "shop" }).click();
  await page.getByLabel("Profile view mode").selectOption({ label: "Chart" });
}

// Open the SVG in a low window, because the stacks of imports are deep.
async function asSvg(page) {
  await page.setViewportSize({ width: 1280, height: 520 });
  await page.goto(pathToFileURL(`${profile}.svg`).href);
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--allow-file-access-from-files",
    `--remote-debugging-port=${DEVTOOLS_PORT}`],
});
try {
  const problems = [];
  for (const [name, colorScheme, open] of [
    ["page", "light", (page) => page.goto(pathToFileURL(`${profile}.html`).href)],
    ["page-dark", "dark", async (page) => {
      await page.goto(pathToFileURL(`${profile}.html`).href);
      await page.click("button[data-value=alive]");
      await page.click("button:text-is(\"… and types\")");
      await page.click("nav button:text-is(\"Types\")");
    }],
    ["page-diff", "light", (page) => page.goto(pathToFileURL(`${profile}-diff.html`).href)],
    ["speedscope", "light", inSpeedscope], ["pprof", "light", inPprof],
    ["devtools", "light", inDevTools], ["flamegraph-pl", "light", asSvg]]) {
    const page = await browser.newPage({
      viewport: { width: 1280, height: 800 }, colorScheme });
    page.on("pageerror", (error) => problems.push(`${name}: ${error.message}`));
    await open(page);
    if (name !== "pprof") {
      await page.waitForTimeout(1500);
      await page.screenshot({ path: `${folder}/${name}.png` });
    }
    await page.close();
  }
  if (problems.length) throw new Error(problems.join("\n"));
} finally {
  await browser.close();
}
