// What a person does on the dashboard, scenario by scenario. test_dashboard_in_browser.py starts a gateway and runs each of them.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { check, clean, enter, given, open, please, run, same, topicAddress, until, wider } from "./browser.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SCREENS = ["/", "/topics", topicAddress(), `${topicAddress()}?edit=1`, "/connections", "/brokers", "/changes", "/quotas", "/configuration", `/t/amqp/${encodeURIComponent(given.topic)}`];

const settled = async (page) => {
  await page.waitForSelector("#title");
  await until(async () => !(await page.innerText("main")).includes("Loading …") && !(await page.innerText("main")).includes("加载中"), "what is loading");
};
const visit = async (page, path) => {
  await page.goto(given.admin + path);
  await settled(page);
};
const picture = async (page, name) => {
  if (given.pictures) await page.screenshot({ path: `${given.pictures}/dashboard-${name}.png` });
};

const scenarios = {
  async sign_in() {
    const page = await open({ signIn: null });
    await page.press("#token", "Enter");
    check((await page.innerText(".error")).includes("Paste a token"), "an empty token is said to be missing");
    await page.fill("#token", "wrong-token-wrong-token");
    await page.press("#token", "Enter");
    await until(async () => (await page.innerText("form")).includes("not known"), "a bad token to be refused");
    same(await page.inputValue("#token"), "wrong-token-wrong-token", "what was typed");
    same(await page.evaluate("document.activeElement.id"), "token", "the focus");
    await enter(page, given.tokens.operator);
    await until(async () => (await page.innerText(".role")).includes("operator"), "the role");
    check(!(await page.content()).includes(given.tokens.operator), "the token stands nowhere");
    check(!page.asked.some((url) => url.includes(given.tokens.operator)), "the token stands in no address");
    same(await page.evaluate("document.cookie"), "", "cookies that a script can read");
    await page.reload();
    await page.waitForSelector("#nav", { state: "attached" });
    await page.click("text=Sign out");
    await page.waitForSelector("#token");
    await page.reload();
    await page.waitForSelector("#token");
    await clean(page);
  },

  async numbers_move() {
    const page = await open();
    await page.waitForSelector(".alarm");
    check((await page.innerText(".alarms")).includes("order.created"), "the alarm names the topic");
    check((await page.innerText(".alarms")).includes("127.0.0.1"), "the alarm names the client");
    const seen = new Set();
    await until(async () => seen.add(await page.innerText(".figures")).size > 3, "four different readings");
    await until(async () => (await page.innerText("table.worst")).includes("%"), "the table of the worst");
    await page.waitForSelector(".plot canvas");
    await clean(page);
  },

  // From the alarm to a limit in force for half an hour: three clicks, where four are allowed.
  async change_a_limit() {
    const page = await open();
    let clicks = 0;
    const click = async (selector) => {
      clicks += 1;
      await page.click(selector);
    };
    await click(".alarm:has-text('order.created') .ways .main");
    await page.waitForSelector(".presets button");
    await click(".presets button:has-text('twice')");
    await until(async () => (await page.innerText(".preview")).includes("100/s"), "the preview");
    await until(async () => /would have refused [\d,]+ of [\d,]+ messages/.test(await page.innerText(".preview")), "what it would have refused");
    same((await (await page.request.get(`${given.admin}/v1/history`)).json()).items.length, 0, "changes by a preview");
    await picture(page, "change-a-limit");
    await click("button:has-text('Apply for 30 minutes')");
    await page.waitForSelector("#undo");
    check(clicks <= 4, `${clicks} clicks`);
    same(await page.evaluate("document.activeElement.id"), "undo", "the focus");
    check(/ends in (29|30) min/.test(await page.innerText(".done")), "the countdown");
    const path = `${given.admin}/v1/limits/amqp/${given.topic}`;
    const saved = await (await page.request.get(path)).json();
    same([saved.override.messages, saved.override.by], ["100/s", "ana"], "what is in force");
    await until(async () => (await page.innerText(".level")).includes("100/s"), "the limit in force on the page");
    await until(async () => page.evaluate("document.querySelector('.key.mark') !== null"), "the mark on the chart");
    const changes = await page.context().newPage();
    await changes.goto(`${given.admin}/changes`);
    await until(async () => (await changes.innerText("main")).includes("messages: 100/s"), "the history");
    await changes.close();
    await page.click("#undo");
    await until(async () => (await page.innerText(".done")).includes("Undone"), "the undo");
    same((await (await page.request.get(path)).json()).override, null, "the live change");
    await clean(page);
  },

  async field_errors() {
    const page = await open({ path: `${topicAddress()}?edit=1` });
    await page.waitForSelector("#edit-messages");
    await page.fill("#edit-reason", "as typed");
    await page.fill("#edit-messages", "10O");
    await page.waitForSelector("#edit-messages-error");
    await page.press("#edit-messages", "Enter");
    await until(async () => (await page.evaluate("document.activeElement.id")) === "edit-messages", "the focus on the field");
    same([await page.inputValue("#edit-messages"), await page.inputValue("#edit-reason")], ["10O", "as typed"], "what was typed");
    same(await page.getAttribute("#edit-messages", "aria-invalid"), "true", "aria-invalid");
    await clean(page);
  },

  async lost_race() {
    const page = await open({ path: `${topicAddress()}?edit=1` });
    await page.waitForSelector(".presets button");
    await page.fill("#edit-messages", "70/s");
    await until(async () => (await page.innerText(".preview")).includes("70/s"), "the preview");
    await please("change the limit");
    await page.click("button:has-text('Apply for')");
    await page.waitForSelector("dialog[open]");
    const text = await page.innerText("dialog");
    check(text.includes("33/s") && text.includes("70/s"), `both versions: ${text}`);
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { state: "detached" });
    same(await page.inputValue("#edit-messages"), "70/s", "what was typed");
    await page.click("button:has-text('Apply for')");
    await until(async () => (await page.innerText(".done")).includes("70/s"), "the second try, which has seen theirs");
    await page.click("#undo");
    await until(async () => (await page.innerText(".level")).includes("33/s"), "theirs again");
    await please("take it back");
    await clean(page);
  },

  async restart() {
    const page = await open();
    await page.waitForSelector(".alarm");
    await please("stop");
    await page.waitForSelector(".lost");
    await please("start");
    await until(async () => (await page.$("#token")) || !(await page.$(".lost")), "the page to notice");
    if (await page.$("#token")) await enter(page, given.tokens.operator); // sessions do not outlive the gateway
    await until(async () => !(await page.$(".lost")), "the stream to be back");
    const before = await page.innerText(".figures");
    await until(async () => (await page.innerText(".figures")) !== before, "numbers that move");
    await clean(page);
  },

  async ten_thousand_topics() {
    const calm = await open({ path: "/brokers" });
    const watch = () => {
      window.tasks = [];
      new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((each) => each.duration))).observe({ type: "longtask" });
    };
    const longest = (page) => page.evaluate("Math.max(0, ...window.tasks)");
    await calm.evaluate(watch);
    await calm.waitForTimeout(3000);
    const noise = await longest(calm);
    await calm.evaluate(() => setTimeout(() => {
      const end = performance.now() + 150;
      while (performance.now() < end);
    }, 50));
    await until(async () => (await longest(calm)) >= 120, "the observer to see a long task at all");
    await calm.context().close();
    const page = await open({ path: "/topics" });
    await until(async () => Number((await page.innerText(".tools [role=status]")).replace(/\D/g, "")) >= 10_000, "10,000 topics");
    const state = () => page.evaluate("document.querySelectorAll('.long tbody tr').length");
    check((await state()) < 120, `${await state()} rows in the document`);
    await page.waitForTimeout(1500);
    await page.evaluate(watch);
    for (let at = 0; at < 30; at += 1) {
      await page.evaluate((to) => (document.querySelector(".window").scrollTop = to), at * 12_000);
      await page.waitForTimeout(50);
    }
    await until(async () => page.evaluate("document.querySelectorAll('.long tbody tr[aria-rowindex]').length > 5"), "rows after scrolling");
    check((await state()) < 120, `${await state()} rows after scrolling`);
    const scrolling = await longest(page);
    await page.fill("#search", "many.0042");
    await until(async () => (await page.innerText(".tools [role=status]")).startsWith("10 of"), "the search");
    await page.fill("#search", "");
    await page.click(".c-topic button");
    await until(async () => (await page.getAttribute(".c-topic", "aria-sort")) !== "none", "the order");
    process.stdout.write(`figures longest task ${scrolling.toFixed(0)} ms while scrolling, ${noise.toFixed(0)} ms on a calm page\n`);
    check(scrolling < 1000 + 2 * noise, `a task of ${scrolling} ms while scrolling; on a calm page ${noise} ms`); // the goal is 50 ms; the rest is for a busy machine
    await clean(page);
  },

  async hostile_names() {
    const page = await open({ path: "/topics" });
    await until(async () => (await page.innerText(".long")).includes("<img src=x onerror=alert(1)>"), "the name as text");
    same(await page.evaluate("document.querySelectorAll('main img, main script').length"), 0, "elements made of names");
    for (const topic of given.hostile) {
      for (const path of [topicAddress(topic), `/t/amqp/${encodeURIComponent(topic)}`]) {
        await visit(page, path);
        check((await page.innerText(".raw")).includes(topic.slice(-20)), `the topic ${topic.slice(-20)} is shown`);
        await until(async () => (await page.innerText(".figures")).includes("50/s"), `the limit of ${topic.slice(-20)}`);
        check((await wider(page)) <= 0, `${topic.slice(0, 40)} makes the page too wide`);
      }
    }
    await clean(page);
  },

  async another_origin() {
    const page = await open();
    const other = await page.context().newPage();
    await other.goto(given.elsewhere);
    const tried = await other.evaluate(async (admin) => {
      const outcomes = [];
      for (const [path, options] of [["/v1/status", { credentials: "include" }], ["/v1/topics", { credentials: "include", mode: "cors" }], ["/v1/limits/rocketmq/stolen?force=1", { method: "PUT", credentials: "include", headers: { "Content-Type": "application/json" }, body: '{"messages":"1/s"}' }]]) {
        outcomes.push(await fetch(admin + path, options).then((answer) => `read ${answer.status}`, () => "refused"));
      }
      await fetch(`${admin}/v1/limits/rocketmq/stolen?force=1`, { method: "POST", mode: "no-cors", credentials: "include", body: '{"messages":"1/s"}' }).catch(() => {});
      const frame = document.createElement("iframe");
      frame.src = admin;
      document.body.append(frame);
      await new Promise((resolve) => (frame.onload = resolve));
      let inside = "closed";
      try {
        inside = frame.contentDocument?.title ?? "closed";
      } catch { /* as it should be */ }
      return [...outcomes, inside];
    }, given.admin);
    same(tried, ["refused", "refused", "refused", "closed"], "what another origin gets");
    same((await (await page.request.get(`${given.admin}/v1/limits/rocketmq/stolen`)).json()).override, null, "what another origin has written");
  },

  async keyboard_alone() {
    const page = await open({ signIn: null });
    await page.waitForFunction("document.activeElement.id === 'token'");
    await page.keyboard.type(given.tokens.operator);
    await page.keyboard.press("Enter");
    await page.waitForSelector(".alarm");
    await page.evaluate("document.activeElement.blur()");
    const press = async (key, wanted, what) => {
      for (let at = 0; at < 60; at += 1) {
        await page.keyboard.press(key);
        if (await page.evaluate(wanted)) return;
      }
      throw new Error(`not reached by ${key}: ${what}`);
    };
    await page.keyboard.press("Tab");
    check(await page.evaluate("document.activeElement.className === 'skip'"), "the first stop is the skip link");
    await page.keyboard.press("Enter");
    same(await page.evaluate("document.activeElement.id"), "main", "behind the skip link");
    await press("Tab", "document.activeElement.matches('.alarm .ways .main')", "the alarm's button");
    const outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle");
    check(outline !== "none", "the focus is visible");
    await page.waitForTimeout(2500); // two renders
    check(await page.evaluate("document.activeElement.matches('.alarm .ways .main')"), "the focus stays while numbers move");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".presets button");
    await press("Tab", "document.activeElement.closest('.presets') !== null && document.activeElement.textContent.includes('half')", "a preset");
    await page.keyboard.press("Space");
    await until(async () => (await page.inputValue("#edit-messages")) === "25/s", "the preset");
    await press("Tab", "document.activeElement.type === 'submit'", "the button that applies it");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#undo");
    await page.keyboard.press("Enter");
    await until(async () => (await page.innerText(".done")).includes("Undone"), "the undo");
    await page.goBack();
    await until(async () => (await page.innerText("h1")) === "Overview", "the back button");
    await clean(page);
  },

  async accessible() {
    for (const dark of [false, true]) {
      const page = await open({ dark, signIn: null });
      const audit = async (what) => {
        same(await axe(page), [], `axe-core, ${what}, ${dark ? "dark" : "light"}`);
      };
      await audit("sign in");
      await enter(page, given.tokens.admin);
      for (const path of SCREENS) {
        await visit(page, path);
        await audit(path);
      }
      await page.context().close();
    }
  },

  async widths_and_languages() {
    for (const [width, height] of [[390, 844], [1280, 900]]) {
      for (const language of ["en", "zh"]) {
        const page = await open({ width, height, language, signIn: "admin" });
        for (const path of SCREENS) {
          await visit(page, path);
          check((await wider(page)) <= 0, `${path} at ${width} px in ${language} scrolls sideways by ${await wider(page)} px`);
          const text = await page.innerText("main");
          check(!/\{\w+\}|undefined|NaN|\[object/.test(text), `${path} in ${language}: ${text.match(/.{0,30}(\{\w+\}|undefined|NaN|\[object).{0,30}/)?.[0]}`);
          if (language === "zh") check(/[\u4e00-\u9fff]{2}/.test(await page.innerText("h1")) || path.startsWith("/t"), `${path}: ${await page.innerText("h1")}`);
        }
        if (width === 390) {
          await visit(page, "/");
          await page.click(".menu");
          await page.click("#nav a[href='/topics']");
          await until(async () => page.url().endsWith("/topics"), "the menu");
        }
        await clean(page);
        await page.context().close();
      }
    }
  },

  async viewer() {
    const page = await open({ signIn: "viewer" });
    await page.waitForSelector(".alarm");
    for (const path of SCREENS) {
      await visit(page, path);
      await page.waitForTimeout(300);
      const words = await page.$$eval("main button, main .button", (all) => all.map((each) => each.textContent.trim()));
      const forbidden = words.filter((text) => /limit …|Edit|Change|Apply|Close|Roll|Put|Make|Revoke|Reload|Dry run|New token|^Set$|Undo/i.test(text));
      same(forbidden, [], `buttons of ${path} that the API would refuse`);
    }
    await visit(page, `/t/amqp/${encodeURIComponent(given.topic)}`);
    await until(async () => (await page.innerText("main")).includes("limited now"), "the verdict");
    await until(async () => (await page.innerText("main")).includes("pika"), "what their library shows");
    check(!page.asked.some((url) => /\/v1\/(tokens|audit)/.test(url)), "nothing is asked that a viewer may not");
    await clean(page);
  },

  async addresses_and_size() {
    const page = await open({ signIn: null });
    await page.waitForSelector("#token");
    const paint = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime");
    await enter(page, given.tokens.operator);
    const sizes = await page.evaluate(`[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
      .filter((each) => !new URL(each.name).pathname.startsWith("/v1/")).map((each) => each.encodedBodySize)`);
    const total = sizes.reduce((sum, each) => sum + each, 0);
    process.stdout.write(`figures ${sizes.length} files, ${Math.round(total / 1000)} kB sent, first contentful paint ${paint.toFixed(0)} ms\n`);
    check(total > 30_000 && total < 200_000, `${total} bytes are sent`);
    check(paint < 3000, `the first paint took ${paint} ms`); // the goal is 300 ms; the rest is for a busy machine
    await visit(page, topicAddress());
    await page.click("#nav a[href='/brokers']");
    await until(async () => (await page.innerText("h1")) === "Brokers and listeners", "the screen");
    same(await page.evaluate("document.activeElement.id"), "title", "the focus on the new screen's title");
    await page.goBack();
    await until(async () => (await page.innerText("h1")).includes("order.created"), "the screen before");
    for (const path of SCREENS) {
      await visit(page, path);
      const twin = await page.getAttribute(".twin a", "href");
      const answer = await page.request.get(given.admin + twin);
      same(answer.status(), 200, `${twin}, the twin of ${path}`);
      const csv = await page.$(".twin a[download]");
      if (csv) {
        const list = await page.request.get(given.admin + (await csv.getAttribute("href")));
        same([list.status(), list.headers()["content-type"].split(";")[0]], [200, "text/csv"], `CSV of ${path}`);
      }
    }
    await clean(page);
  },

  async pictures() {
    const page = await open({ signIn: "operator" });
    await page.waitForSelector(".alarm");
    await page.waitForTimeout(given.pictures ? 45_000 : 0); // a chart with something on it
    await picture(page, "overview");
    await visit(page, topicAddress());
    await page.waitForSelector(".plot canvas");
    await picture(page, "topic");
    await visit(page, "/topics");
    await page.context().close();
    const team = await open({ signIn: "viewer", path: `/t/amqp/${encodeURIComponent(given.topic)}`, dark: true, language: "zh" });
    await team.waitForSelector(".plot canvas");
    check((await team.innerText("main")).includes("正在被限流"), "the verdict, in Chinese");
    await team.click("button:has-text('15 分钟')");
    await settled(team);
    await picture(team, "my-topic-zh-dark");
    const phone = await open({ signIn: "operator", width: 390, height: 844 });
    await phone.waitForSelector(".alarm");
    await picture(phone, "phone");
    for (const each of [team, phone]) await clean(each);
  },
};

/** What axe-core finds: rule and place. It is run from the test, not from the page, whose policy would refuse it. */
async function axe(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: AXE });
  const found = await session.send("Runtime.evaluate", {
    expression: "axe.run(document, { resultTypes: ['violations'] }).then((found) => JSON.stringify(found.violations.map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160) + ' ' + (node.any[0]?.message || '')).join(' | ')}`)))",
    awaitPromise: true, returnByValue: true,
  });
  return JSON.parse(found.result.value ?? '["axe-core did not run"]');
}

await run(scenarios);
