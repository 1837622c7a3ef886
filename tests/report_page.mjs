// The page of `edgecut report` in headless Chromium, clicked through: node tests/report_page.mjs PAGE.html
// PAGE.html is of a plan and its profile, better with results of a run. Needs playwright-core (npm ci in crates/report/page)
// and Chromium ($CHROMIUM, or where systems have it); without either it says SKIPPED and exits 0.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const places = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = places.find(path => path && existsSync(path));
const [page] = process.argv.slice(2);

function skip(why) {
  console.error(`SKIPPED: ${why}`);
  process.exit(0);
}

let chromium;
try {
  ({ chromium } = createRequire(join(here, "../crates/report/page/package.json"))("playwright-core"));
} catch {
  skip("no playwright-core: `npm ci` in crates/report/page installs it");
}
if (!executablePath) skip("no Chromium on this machine");

const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const profile = mkdtempSync(join(tmpdir(), "edgecut-chromium-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath, headless: true, args: ARGUMENTS, viewport: { width: 1200, height: 900 }, colorScheme: "light",
});
const tab = await browser.newPage();
const complaints = [], loads = [];
tab.on("console", message => { if (["error", "warning"].includes(message.type())) complaints.push(message.text()); });
tab.on("pageerror", error => complaints.push(error.message));
tab.on("request", request => { if (!/^(file|data):/.test(request.url())) loads.push(request.url()); });

const checks = {
  async "an operator that is clicked tells what it is"() {
    const bar = tab.locator("#plan rect.bar[data-row=predicted]:not(.transfer)").first();
    await bar.click();
    const details = tab.locator("#plan .details");
    for (const term of ["device", "time from", "predicted", "begins", "critical"]) {
      assert.ok((await details.locator("dt").allTextContents()).includes(term), term);
    }
    assert.ok(await tab.locator("#plan rect.bar.chosen").count() > 0);
  },
  async "arrows choose the next operator, keys and buttons zoom"() {
    const chart = tab.locator("#plan svg.gantt"), title = () => tab.locator("#plan .details h4").textContent();
    const before = await title();
    await chart.focus();
    await tab.keyboard.press("ArrowRight");
    assert.notEqual(await title(), before);
    const ticks = () => chart.locator(".axis text").allTextContents();
    const whole = (await ticks()).join();
    await tab.keyboard.press("+");
    await tab.waitForTimeout(100);
    assert.notEqual((await ticks()).join(), whole, "zoomed by a key");
    await tab.getByRole("button", { name: "Everything in sight" }).click();
    await tab.waitForTimeout(100);
    assert.equal((await ticks()).join(), whole, "all in sight again");
    await chart.hover();
    await tab.mouse.wheel(0, -400);
    await tab.waitForTimeout(100);
    assert.notEqual((await ticks()).join(), whole, "zoomed by the wheel");
    await chart.focus();
    await tab.keyboard.press("0");
    await tab.waitForTimeout(100);
    assert.equal((await ticks()).join(), whole, "all in sight by a key");
  },
  async "the table sorts and filters"() {
    const table = tab.locator("#operators .sorted"), heading = table.getByRole("button", { name: "FLOPs" });
    const rows = () => table.locator("tbody tr").count();
    const column = async () => {
      const index = (await table.locator("th").allTextContents()).indexOf("FLOPs");
      return table.locator(`tbody tr td:nth-child(${index + 1})`).allTextContents();
    };
    const number = text => parseFloat(text) * ({ k: 1e3, M: 1e6, G: 1e9, T: 1e12 }[text.at(-1)] ?? 1);
    for (const [order, sign] of [["descending", -1], ["ascending", 1]]) {
      await heading.click();
      assert.equal(await table.locator(`th[aria-sort=${order}]`).count(), 1);
      const values = (await column()).map(number);
      assert.deepEqual(values, [...values].sort((a, b) => sign * (a - b)), order);
    }
    const all = await rows();
    const word = (await table.locator("tbody td.long").first().textContent()).split("+")[0];
    await table.getByRole("searchbox").fill(word);
    const some = await rows();
    assert.ok(some > 0 && some <= all, `${some} of ${all}`);
    for (const row of await table.locator("tbody tr").allTextContents()) assert.ok(row.includes(word), row);
    await table.getByRole("searchbox").fill("no such operator");
    assert.equal(await rows(), 0);
    await table.getByRole("searchbox").fill("");
    assert.equal(await rows(), all);
  },
  async "a tile filters the table by its kind"() {
    await tab.locator("#operators rect.tile").first().click();
    assert.notEqual(await tab.locator("#operators").getByRole("searchbox").inputValue(), "");
  },
  async "a row of the plan's table is shown in the plan"() {
    const list = tab.locator("#operators label.choice select").first();
    await list.selectOption({ label: (await list.locator("option").allTextContents()).find(text => text.startsWith("plan ")) });
    const row = tab.locator("#operators tbody button.link").nth(1), number = await row.textContent();
    await row.click();
    assert.ok((await tab.locator("#plan .details h4").textContent()).startsWith(number));
  },
  async "activities of a device are as long as the latency"() {
    const bars = tab.locator("#accuracy .breakdown rect.bar");
    if (!await tab.locator("#accuracy").count()) return;
    assert.ok(await bars.count() > 0);
    const ends = await bars.evaluateAll(all => all.map(bar => [bar.y.baseVal.value, bar.x.baseVal.value + bar.width.baseVal.value]));
    const width = await tab.locator("#accuracy .breakdown svg.chart").evaluate(chart => chart.viewBox.baseVal.width);
    for (const end of new Map(ends).values()) assert.ok(Math.abs(end - width) < 4, `${end} of ${width}`);
    await bars.first().hover();
    assert.ok((await tab.locator(".tip").textContent()).includes(" of "));
  },
  async "the theme is toggled"() {
    const back = () => tab.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const before = await back();
    await tab.getByRole("button", { name: "Dark theme" }).click();
    assert.notEqual(await back(), before);
    await tab.getByRole("button", { name: "Light theme" }).click();
    assert.equal(await back(), before);
  },
  async "nothing is wider than a narrow screen, where a plan that was zoomed at its end shows the same"() {
    await tab.locator("#plan svg.gantt").focus();
    for (const key of ["+", "+", "+", "+", "End"]) await tab.keyboard.press(key);
    await tab.setViewportSize({ width: 400, height: 800 });
    await tab.waitForTimeout(200);
    assert.ok(await tab.evaluate(() => document.documentElement.scrollWidth) <= 400);
    assert.ok(await tab.locator("#plan rect.bar").count() > 0, "the plan has bars");
  },
  async "charts have content"() {
    for (const id of ["plan", "memory", "bound", "operators", "roofline", "cluster"]) {
      assert.ok(await tab.locator(`#${id}`).count() === 1, id);
    }
    for (const [id, mark] of [["plan", "rect.bar"], ["memory", "path.live"], ["roofline", "path.dot"], ["operators", "rect.tile"]]) {
      assert.ok(await tab.locator(`#${id} ${mark}`).count() > 0, `${id} has ${mark}`);
    }
  },
  async "nothing is loaded and nothing is complained about"() {
    assert.deepEqual(loads, []);
    assert.deepEqual(complaints, []);
  },
};

let failed = 0;
await tab.goto(pathToFileURL(resolve(page)).href);
await tab.waitForSelector("#plan rect.bar");
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n${error.stack}`);
  }
}
await browser.close();
rmSync(profile, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
