// A page of the dashboard in Debian's headless Chromium, with what must never happen on it counted: errors, policy violations, requests elsewhere.

import readline from "node:readline";
import { chromium } from "playwright-core";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
export const WAIT = 240_000; // ms; a busy machine takes its time

export const given = {}; // what the scenario that is played has of its test
export const topicAddress = (topic = given.topic, protocol = "amqp") => `/topics/${protocol}/${protocol === "amqp" ? topic : encodeURIComponent(topic)}`;

const browser = await chromium.launch({ executablePath: process.argv[2], args: FLAGS });
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Let the test that started this do something to the gateway, and wait until it is done. */
export async function please(what) {
  process.stdout.write(`please ${what}\n`);
  return (await lines.next()).value;
}

export function check(held, what) {
  if (!held) throw new Error(what);
}

export const same = (found, wanted, what) => check(JSON.stringify(found) === JSON.stringify(wanted), `${what}: ${JSON.stringify(found)} is not ${JSON.stringify(wanted)}`);

/** Waits until `read` gives something true. */
export async function until(read, what, within = WAIT) {
  const end = Date.now() + within;
  for (;;) {
    const found = await read();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not within ${within / 1000} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export async function open({ width = 1280, height = 900, dark = false, language = "en", signIn = "operator", path = "/", script = "" } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", locale: language === "zh" ? "zh-CN" : "en-GB", reducedMotion: "reduce" });
  context.setDefaultTimeout(WAIT);
  await context.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  await context.addInitScript(script);
  const page = await context.newPage();
  page.faults = [];
  page.asked = [];
  page.bytes = new Map();
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.on("console", (message) => {
    const expected = /status of (401|412|422|403|404|429)|ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY/; // answers that the page is made for
    if (message.type() === "error" && !expected.test(message.text())) page.faults.push(message.text());
  });
  page.on("request", (request) => page.asked.push(request.url()));
  await page.goto(given.admin + path);
  if (signIn) await enter(page, given.tokens[signIn]);
  return page;
}

export async function enter(page, token) {
  await page.fill("#token", token);
  await page.press("#token", "Enter");
  await page.waitForSelector("#nav", { state: "attached" });
}

/** Nothing bad has happened on the page so far. */
export async function clean(page) {
  same(page.faults, [], "errors");
  same(await page.evaluate("window.violations"), [], "violations of the policy");
  const elsewhere = page.asked.filter((url) => !url.startsWith(given.admin) && !url.startsWith("data:") && !url.startsWith("blob:"));
  same(elsewhere, [], "requests to other places");
}

/** What Chromium's own trace says of the tasks of a page's main thread while `doing(evaluate)` runs: [{cpu, wall}], ms, the longest first.
 *
 * `cpu` is the time that the thread had a processor for: it is the same on a busy machine. `evaluate` runs an expression in the page by
 * itself: the page's other functions would first load Playwright's own script into it, a task of 100 ms. `events`: the trace.
 */
export async function traced(page, doing) {
  const session = await browser.newBrowserCDPSession();
  const own = await page.context().newCDPSession(page);
  const events = [];
  session.on("Tracing.dataCollected", (data) => events.push(...data.value));
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["toplevel", "devtools.timeline", "loading", "blink.user_timing"] } });
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await own.send("Runtime.evaluate", { expression, returnByValue: true });
    check(!exceptionDetails, `${expression}: ${JSON.stringify(exceptionDetails)}`);
    return result.value;
  };
  await doing(evaluate, own);
  for (let at = 0; at < 12; at += 1) await evaluate("1"); // a task each, so that a trace which has lost its end is told from one of a page that did little
  const complete = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
  await session.send("Tracing.end");
  await complete;
  for (const each of [session, own]) await each.detach();
  const threads = new Set(events.filter((each) => each.name === "thread_name" && each.args.name === "CrRendererMain").map((each) => `${each.pid} ${each.tid}`));
  const tasks = events.filter((each) => each.ph === "X" && each.name.endsWith("RunTask") && each.tdur !== undefined && threads.has(`${each.pid} ${each.tid}`));
  check(tasks.length > 10, `${tasks.length} tasks in the trace`);
  return { events, tasks: tasks.map((each) => ({ cpu: each.tdur / 1000, wall: each.dur / 1000, ts: each.ts, pid: each.pid })).sort((one, other) => other.cpu - one.cpu) };
}

/** CPU ms of a task in which a page builds a thousand rows at once: what other tasks are held against, on a machine of any speed.
 *
 * The smallest of three: what else the machine does adds to it.
 */
export async function yardstick(page) {
  const build = `(() => {
    const table = document.createElement("table");
    for (let row = 0; row < 1000; row += 1) {
      const line = table.insertRow();
      for (let cell = 0; cell < 8; cell += 1) line.insertCell().append(\`row \${row} \${cell}\`);
    }
    document.body.append(table);
    const height = table.offsetHeight;
    table.remove();
    return height;
  })()`;
  const { tasks } = await traced(page, async (evaluate) => {
    for (let at = 0; at < 12; at += 1) await evaluate(at % 4 ? "1" : build);
  });
  return tasks[2].cpu;
}

export const wider = (page) => page.evaluate("document.documentElement.scrollWidth - innerWidth");

// What waited for a page of a scenario that has ended, as a request that was held back.
process.on("unhandledRejection", (error) => {
  if (!String(error).includes("has been closed")) throw error;
});

/** Plays what each line asks for, `{scenario, …}`, one after the other, each with contexts of its own; the first that fails is the last. */
export async function run(scenarios) {
  for (let { value } = await lines.next(); value; { value } = await lines.next()) {
    for (const name of Object.keys(given)) delete given[name];
    Object.assign(given, JSON.parse(value));
    try {
      await scenarios[given.scenario]();
      for (const context of browser.contexts()) await context.close();
      process.stdout.write("held\n");
    } catch (error) {
      const pages = browser.contexts().flatMap((context) => context.pages());
      const shown = await Promise.all(pages.map(async (page) => `${page.url()}\n${(await page.innerText("body").catch(() => "")).slice(0, 2000)}`));
      process.stdout.write(`failed ${JSON.stringify([String(error.stack || error), ...shown])}\n`);
      break;
    }
  }
  await browser.close();
  process.exit(0);
}
