// What a person does on the dashboard, scenario by scenario. test_dashboard_in_browser.py starts the gateways.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { check, clean, enter, given, open, please, run, same, topicAddress, traced, until, wider, yardstick } from "./browser.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const screens = () => ["/", "/topics", topicAddress(), `${topicAddress()}?edit=1`, "/connections", "/brokers", "/changes", "/quotas", "/configuration", `/t/amqp/${encodeURIComponent(given.topic)}`];

const settled = async (page) => {
  await page.waitForSelector("#title");
  await until(() => page.evaluate("document.querySelector('main:not([aria-busy])') !== null && !/Loading …|加载中/.test(document.querySelector('main').innerText)"), "what is loading");
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
    const made = await fetch(`${given.admin}/v1/tokens`, { method: "POST", headers: { Authorization: `Bearer ${given.tokens.admin}`, "Content-Type": "application/json" }, body: JSON.stringify({ name: "moment", role: "operator", expires: "4s" }) });
    await page.goto(given.admin + topicAddress());
    await enter(page, (await made.json()).token);
    await until(async () => (await page.locator("#token").count()) && (await page.innerText(".notice")).includes("The session is over"), "a token that expires under the open page");
    await enter(page, given.tokens.operator);
    await until(async () => (await page.innerText("h1")).includes("order.created"), "the screen that it was");
    await clean(page);
  },

  // The link that `sluice run` shows: in at once, once, and gone from the address.
  async link_of_the_terminal() {
    const page = await open({ signIn: null, path: given.link });
    await page.waitForSelector("#nav", { state: "attached" });
    check((await page.innerText(".role")).includes("admin"), "the role");
    same(await page.evaluate("location.href"), `${given.admin}/`, "the address");
    check(!page.asked.some((url) => url.includes(given.link.split("=")[1])), "the code stands in no address that is asked");
    await until(async () => (await page.innerText("main")).includes("orders"), "the topic that was published to");
    await page.reload();
    await page.waitForSelector("#nav", { state: "attached" });
    const again = await page.context().newPage(); // the same browser follows the link once more
    await again.goto(given.admin + given.link);
    await again.waitForSelector("#nav", { state: "attached" });
    const late = await open({ signIn: null, path: given.link });
    await late.waitForSelector("#token");
    check((await late.innerText(".notice")).includes("used already"), "another browser is told why");
    same(await late.evaluate("location.href"), `${given.admin}/`, "its address");
    await enter(late, given.tokens.admin);
    await late.waitForSelector(".role");
    await clean(page);
    await clean(late);
  },

  async numbers_move() {
    const page = await open();
    await page.waitForSelector(".alarm");
    await until(async () => (await page.innerText(".alarms")).includes("order.created"), "the alarm names the topic");
    await until(async () => (await page.innerText(".alarms")).includes("127.0.0.1"), "the alarm names the client");
    const seen = new Set();
    await until(async () => seen.add(await page.innerText(".figures")).size > 3, "four different readings");
    await until(async () => (await page.innerText("table.worst")).includes("%"), "the table of the worst");
    await page.waitForSelector(".plot canvas");
    const later = await until(() => page.asked.find((url) => /\/v1\/series\?.*since=\d+/.test(url)), "only new points to be asked for");
    const some = await (await page.request.get(later)).json();
    const all = await (await page.request.get(later.replace(/&since=.*/, ""))).json();
    const points = () => page.evaluate("document.querySelector('.plot').plot.data[0]");
    const [before, first] = [(await points()).length, (await points())[0]];
    check(some.start >= all.start, "points since some time");
    await until(async () => (await points()).length > before + 2, "points that are added");
    const times = await points();
    same([times[0], times.every((each, at) => each === first + at)], [first, true], "a point for each second, from the first on");
    await clean(page);
  },

  // How new points are joined to those that the page has: over each other, after a hole, at most so many, and when they do not fit.
  async points_are_joined() {
    const page = await open();
    const found = await page.evaluate(async () => {
      const { longer } = await import("/dashboard/screen_data.js");
      const series = (start, received, more = {}) => ({ known: true, step: 10, start, end: received.length ? start + 10 * (received.length - 1) : 0, points: { received, limit: null }, marks: [], missing: [], ...more });
      const old = series(100, [1, 2, 3, 4], { marks: [{ ts: 101, revision: 1 }, { ts: 125, revision: 2 }] });
      const brief = (joined) => joined && [joined.start, joined.end, joined.points.received, joined.points.limit, joined.marks.map((mark) => mark.revision), joined.missing, joined.known];
      return [
        longer(old, series(120, [30, 40, 50], { marks: [{ ts: 125, revision: 2 }, { ts: 141, revision: 3 }] }), 100),
        longer(old, series(160, [7]), 100),
        longer(old, series(120, [30, 40, 50]), 3),
        longer(old, series(0, [], { missing: [2] }), 100),
        longer(old, series(0, [], { known: false }), 100),
        longer(old, series(125, [5]), 100),
        longer(old, series(80, [5, 6, 7]), 100),
      ].map(brief);
    });
    same(found, [
      [100, 140, [1, 2, 30, 40, 50], null, [1, 2, 3], [], true],
      [100, 160, [1, 2, 3, 4, null, null, 7], null, [1, 2], [], true],
      [120, 140, [30, 40, 50], null, [], [], true],
      [100, 130, [1, 2, 3, 4], null, [1, 2], [2], true],
      [0, 0, [], null, [], [], false],
      null, // a gateway that has begun anew counts its ten seconds otherwise
      null, // its clock was set back
    ], "joined points");
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
    const alarm = () => page.innerText(".alarm:has-text('order.created')");
    await until(async () => /over its limit for \d+ (s|min)/.test(await alarm()) && /\d+ % of that is from 127\.0\.0\.1 \(shop\)/.test(await alarm()), "since when, and who");
    await click(".alarm:has-text('order.created') .ways .main");
    await page.waitForSelector(".presets button");
    await click(".presets button:has-text('twice')");
    await until(async () => (await page.innerText(".preview")).includes("40/s"), "the preview");
    await until(async () => /would have refused [\d,]+ of [\d,]+ messages/.test(await page.innerText(".preview")), "what it would have refused");
    same((await (await page.request.get(`${given.admin}/v1/history`)).json()).items.length, 0, "changes by a preview");
    await click("button:has-text('Apply for 30 minutes')");
    await page.waitForSelector("#undo");
    check(clicks <= 4, `${clicks} clicks`);
    same(await page.evaluate("document.activeElement.id"), "undo", "the focus");
    check(/ends in (29|30) min/.test(await page.innerText(".done")), "the countdown");
    same(new URL(page.url()).search, "", "what stands behind the address once the limit is in force");
    const path = `${given.admin}/v1/limits/amqp/${given.topic}`;
    const saved = await (await page.request.get(path)).json();
    same([saved.override.messages, saved.override.by], ["40/s", "ana"], "what is in force");
    await until(async () => (await page.innerText(".level")).includes("40/s"), "the limit in force on the page");
    await until(async () => page.evaluate("document.querySelector('.key.mark') !== null"), "the mark on the chart");
    same(await page.$$eval(".key", (all) => all.filter((each) => each.offsetHeight > 1.8 * all[0].offsetHeight).length), 0, "names of the legend that are not on one line");
    const plotted = (column) => page.evaluate(`document.querySelector(".plot").plot.data[${column}].findLast((value) => value !== null)`);
    const [passed, limit] = [2, 4];
    await until(async () => (await plotted(limit)) === 40, "the new limit on the chart");
    await until(async () => (await plotted(passed)) > 25, "more that passes, on the chart");
    const changes = await page.context().newPage();
    await changes.goto(`${given.admin}/changes`);
    await until(async () => (await changes.innerText("main")).includes("messages: 40/s"), "the history");
    await changes.goto(given.admin);
    await until(async () => /limited live to 40\/s by ana until (\d\d-\d\d )?\d\d:\d\d/.test(await changes.innerText(".alarm:has-text('order.created')")), "the alarm tells the next operator that it is limited already");
    await changes.close();
    await page.click("#undo");
    await until(async () => (await page.innerText(".done")).includes("Undone"), "the undo");
    same((await (await page.request.get(path)).json()).override, null, "the live change");
    await clean(page);
  },

  // The address is the topic's own after Apply and after Cancel: loaded once more it opens no form, and back leads to where one came from.
  async address_of_the_form() {
    const page = await open();
    for (const [what, shut] of [["Cancel", "button:has-text('Cancel')"], ["Apply", "button:has-text('Apply for')"]]) {
      await page.click(".alarm:has-text('order.created') .ways .main");
      await page.waitForSelector(".presets button");
      same(new URL(page.url()).search, "?edit=1", `the address of the form before ${what}`);
      await until(async () => /over its limit since \d{4}-\d\d-\d\d \d\d:\d\dZ/.test(await page.inputValue("#edit-reason")), "the reason");
      await page.click(".presets button:has-text('half')");
      await page.click(shut);
      await page.waitForSelector("form.edit", { state: "detached" });
      same(new URL(page.url()).search, "", `the address after ${what}`);
      await page.reload();
      await page.waitForSelector("#edit-open");
      same(await page.locator("form.edit").count(), 0, `forms after ${what} and a reload`);
      await page.goBack();
      await until(async () => (await page.innerText("h1")) === "Overview", `back after ${what}`);
      await page.waitForSelector(".alarm:has-text('order.created') .ways .main");
    }
    await visit(page, `${topicAddress()}?edit=1`); // a link to the form, as it may be sent: the reason comes with the numbers
    await until(async () => /over its limit since \d{4}-\d\d-\d\d \d\d:\d\dZ/.test(await page.inputValue("#edit-reason")), "the reason of a form that was loaded");
    await clean(page);
  },

  // Whoever comes to the topic later sees the live change in force, and can undo it as long as it is.
  async undo_later() {
    const page = await open();
    const override = async () => (await (await page.request.get(`${given.admin}/v1/limits/amqp/${given.topic}`)).json()).override?.messages ?? null;
    await please("change the limit");
    await please("change it again");
    await visit(page, topicAddress());
    await until(async () => (await page.locator(".done").count()) && /44\/s · admin · no end/.test(await page.innerText(".done")), "the change in force");
    await page.click("#edit-open");
    await page.fill("#edit-messages", "7/s");
    await page.click("button:has-text('Cancel')");
    same(await page.innerText("#undo"), "Undo: back to 33/s", "what undoing does, also after something was typed");
    await page.click("#undo");
    await until(async () => (await override()) === "33/s", "the limit before");
    await visit(page, "/topics");
    await visit(page, topicAddress());
    await until(async () => (await page.locator(".done").count()) && (await page.innerText(".done")).includes("33/s · ana"), "the change that was restored");
    await please("take it back");
    await until(async () => !(await page.locator(".done").count()), "a change that has ended is not shown");
    await please("change the limit");
    await until(async () => (await page.locator("#undo").count()) && (await page.innerText("#undo")) === "Undo: the rule holds again", "a change that somebody makes meanwhile");
    await page.route("**/v1/limits/**", (route) => (route.request().method() === "GET" && /explain/.test(route.request().url()) ? route.abort() : route.continue())); // this page hears of no more
    await please("change it again");
    await page.click("#undo");
    await page.waitForSelector("dialog[open]");
    check((await page.innerText("dialog")).includes("44/s"), "what is in force instead");
    same(await override(), "44/s", "what somebody else has changed is not undone");
    await page.click("dialog button:has-text('Keep theirs')");
    await page.unroute("**/v1/limits/**");
    await until(async () => (await page.innerText(".done")).includes("44/s"), "the change of the other");
    await page.click("#undo");
    await until(async () => (await override()) === "33/s", "the limit before it");
    const team = await open({ signIn: "viewer", path: topicAddress() });
    await until(async () => (await team.innerText(".level")).includes("33/s"), "the limit, for a viewer");
    same(await team.locator("#undo").count(), 0, "an undo that the API would refuse");
    page.faults = page.faults.filter((fault) => !/ERR_FAILED/.test(fault));
    for (const each of [page, team]) await clean(each);
  },

  // In an incident the first preset caps the topic at what it sends otherwise; what would raise its limit is last, and says so.
  async presets() {
    const page = await open();
    await please("flood a topic that was calm");
    await page.click(".alarm:has-text('order.calm') .ways .main");
    await page.waitForSelector(".presets button:has-text('nothing is refused')");
    const texts = await page.$$eval(".presets button", (all) => all.map((each) => each.textContent));
    const numbers = texts.map((text) => Number.parseFloat(text));
    const named = texts.map((text) => text.replace(/^[\d.]+\/s – /, "").replace(/: raises it$/, ""));
    same([...named].sort(), ["half the limit now", "the limit now", "twice the limit now", "what it sends when nothing is refused (p95)"], "presets");
    const usual = named.indexOf("what it sends when nothing is refused (p95)");
    check(numbers[usual] >= 1 && numbers[usual] <= 100, `what it sends otherwise: ${texts[usual]}`); // of a busy machine, which sends in heaps
    same(numbers.filter((_, at) => at !== usual), [10, 20, 40], "the other presets, from low to high");
    await page.click(`.presets button >> nth=${usual}`);
    await until(async () => /would have refused [\d,]+ of [\d,]+ messages/.test(await page.innerText(".preview")), "what it would have refused");
    await picture(page, "change-a-limit");
    await page.click("button:has-text('Apply for')");
    await page.waitForSelector("#undo");
    const saved = await (await page.request.get(`${given.admin}/v1/limits/amqp/${given.topic.replace("created", "calm")}`)).json();
    same(Number.parseFloat(saved.override.messages), numbers[usual], "what is in force");
    await clean(page);
  },

  // A flood far beyond the limit: the axis has a break above the limit and what passes, and all that comes is still on the chart.
  async scale_of_a_flood() {
    const page = await open({ path: topicAddress() });
    await please("flood harder");
    const top = () => page.evaluate("document.querySelector('.plot')?.plot?.scales.y.max");
    const most = (column) => page.evaluate(`Math.max(...document.querySelector(".plot").plot.data[${column}].map((value) => value || 0))`);
    const place = (value) => page.evaluate(`document.querySelector(".plot").plot.valToPos(${value}, "y")`);
    const [received, passed, limit] = [1, 2, 4];
    await page.waitForSelector(".plot canvas");
    await until(async () => (await top()) > 2.5 * Math.max(await most(passed), await most(limit)), "a flood far beyond the limit");
    await until(async () => (await place(await most(received))) > 0, "all that comes is on the chart");
    check((await place(await most(limit))) < (await place(0)) * 0.6, "the limit is no flat line at the bottom");
    same(await page.evaluate(`(async () => {
      const { patch } = await import("/dashboard/dom.js");
      const { traffic } = await import("/dashboard/chart.js");
      const box = document.body.appendChild(document.createElement("div"));
      const seconds = Array.from({ length: 900 }, (_, at) => at);
      const points = { received: seconds.map((at) => (at % 2 ? 300 : 100)), forwarded: seconds.map((at) => (at < 450 ? 20 : 40)), refused: seconds.map((at) => (at < 450 ? 180 : 160)), limit: seconds.map((at) => (at < 450 ? 20 : 40)), waiting: seconds.map((at) => at) };
      patch(box, [traffic({ range: "15m", series: { known: true, step: 1, start: 1e9, end: 1e9 + 899, points, marks: [{ ts: 1e9 + 450, by: "ana", reason: "more" }], missing: [] } }, { choose() {} }, "a burst")]);
      while (!box.querySelector(".plot").plots.length) await new Promise((resolve) => setTimeout(resolve, 20));
      const { plots } = box.querySelector(".plot");
      const [times, means, , , , highest, least] = plots[0].data.map((each) => each.slice(5, -5));
      const found = [plots[0].data[0].length <= plots[0].width / 2, times[1] - times[0] > 1, Math.round(Math.max(...means)) < 300, Math.min(...highest.map((each, at) => each - least[at])) >= 200, plots.length, box.querySelector(".change").textContent.replace(/^.*?ana/, "ana")];
      box.remove();
      return found;
    })()`), [true, true, true, true, 2, "ana: more · before → after: limit 20/s → 40/s · received 200/s → 200/s · passed 20/s → 40/s · refused 180/s → 160/s"], "as many points as there are pixels, with their least and most, what waits in a panel, and what the change did");
    await picture(page, "flood");
    await clean(page);
  },

  // A name that the gateway has never seen is not one that is quiet.
  async never_seen() {
    const page = await open();
    await page.waitForSelector(".alarm");
    const wrong = given.topic.replace("created", "creatd");
    for (const path of [topicAddress(wrong), `/t/amqp/${encodeURIComponent(wrong)}`, topicAddress(given.topic.replace("orders", "order"))]) {
      await visit(page, path);
      await until(async () => (await page.innerText("main")).includes("Never seen by this gateway"), `${path} is not known`);
      same(await page.$$eval(".notice a.topic", (all) => all.map((each) => each.textContent)), ["orders / order.created"], `names like ${path}`);
    }
    await page.click(".notice a.topic");
    await until(async () => (await page.innerText(".raw")) === given.topic, "the topic that was meant");
    await please("publish once to order.quiet");
    for (const path of [topicAddress(given.topic.replace("created", "quiet")), `/t/amqp/${encodeURIComponent(given.topic.replace("created", "quiet"))}`]) {
      await visit(page, path);
      await until(async () => (await page.innerText(".figures")).includes("20/s"), "its limit");
      check(!(await page.innerText("main")).includes("Never seen"), "a topic that is quiet");
    }
    await clean(page);
  },

  // An address that nothing is at, as it is mistyped: words, and a way back.
  async no_such_page() {
    const page = await open();
    for (const path of ["/nosuch", "/topics/nosuch"]) {
      same((await page.goto(given.admin + path)).status(), 404, path);
      same(await page.innerText("h1"), "There is no such page", path);
      same(await axe(page), [], `axe-core, ${path}`);
      same(await page.evaluate("window.violations"), [], "violations of the policy");
      await page.click("main a[href='/']");
      await until(async () => (await page.innerText("h1")) === "Overview", "the way back");
    }
    await clean(page);
  },

  // Tables scroll in their boxes where the window is narrow: no address and no short word is broken in the middle.
  async words_in_tables() {
    for (const [width, height] of [[390, 844], [1280, 900]]) {
      const page = await open({ width, height, signIn: "operator" });
      await page.waitForSelector(".alarm");
      for (const path of ["/", "/connections", topicAddress(), "/brokers"]) {
        await visit(page, path);
        await page.waitForSelector(".scroll tbody tr");
        const words = await page.$$eval(".scroll :is(th, td)", (cells) => cells.flatMap((cell) => {
          const found = [];
          const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
          while (texts.nextNode()) {
            for (const { 0: word, index } of texts.currentNode.data.matchAll(/\S{2,24}/g)) {
              const range = document.createRange();
              range.setStart(texts.currentNode, index);
              range.setEnd(texts.currentNode, index + word.length);
              found.push([word, new Set([...range.getClientRects()].map((rect) => Math.round(rect.top))).size]);
            }
          }
          return found;
        }));
        check(words.length > 5, `${path} has words: ${words}`);
        if (path === "/connections") check(words.some(([word]) => /^127\.0\.0\.1:\d+$/.test(word)), `an address on ${path}`);
        same(words.filter(([word, lines]) => lines > 1 && !word.includes("-")), [], `broken words on ${path}, ${width} px`);
        check((await wider(page)) <= 0, `${path} scrolls sideways`);
      }
      await clean(page);
      await page.context().close();
    }
  },

  // A tab at its form goes in when another tab has signed in: told by it, or when it is looked at again.
  async other_tab_signs_in() {
    const page = await open({ signIn: null, path: topicAddress() });
    const other = await page.context().newPage();
    await other.goto(given.admin);
    await page.fill("#token", "half of a tok");
    await enter(other, given.tokens.operator);
    await page.waitForSelector("#nav", { state: "attached" });
    await until(async () => (await page.innerText("h1")).includes("order.created"), "the screen that the address names");
    await page.context().clearCookies();
    await page.reload();
    await page.waitForSelector("#token");
    await page.fill("#token", "half of a tok");
    const look = () => page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
    await look();
    await page.waitForTimeout(500);
    same(await page.inputValue("#token"), "half of a tok", "what was typed, while nobody has signed in");
    const signedIn = await page.request.post(`${given.admin}/v1/session`, { data: { token: given.tokens.viewer } }); // as in a browser without the channel
    same(signedIn.status(), 200, "a session of the same browser");
    await look();
    await page.waitForSelector("#nav", { state: "attached" });
    await until(async () => (await page.innerText(".role")).includes("viewer"), "the role of the session");
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
    await page.waitForSelector("form.edit:not([aria-busy]) .presets button");
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
    await please("limit its bytes, too");
    await page.route("**/v1/limits/**", (route) => setTimeout(() => route.continue(), route.request().method() === "GET" && !/explain/.test(route.request().url()) ? 2000 : 0));
    await page.goto(`${given.admin}${topicAddress()}?edit=1`); // on a slow line: the form has not read the limit yet
    await page.fill("#edit-messages", "9/s");
    await page.click("form.edit[aria-busy] button:has-text('Apply for')");
    await until(async () => (await page.locator(".done").count()) && (await page.innerText(".done")).includes("9/s · 1MiB/s · ana"), "what was applied at once, and the bytes that were not touched");
    await page.unrouteAll({ behavior: "wait" });
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
    const page = await open({ path: "/brokers" });
    const busy = (await traced(page, async (evaluate) => {
      await evaluate("setTimeout(() => { let sum = 0; for (let at = 0; at < 5e8; at += 1) sum += at; window.sum = sum; }, 50); 1");
      await until(() => evaluate("window.sum > 0"), "a long task to end");
    })).tasks[0];
    check(busy.cpu > 100, `the trace shows a long task at all: ${JSON.stringify(busy)}`);
    const rowsAtOnce = await yardstick(page);
    const most = (2 / 3) * rowsAtOnce;
    const figures = [`a thousand rows at once ${rowsAtOnce.toFixed(0)}`];
    // The smallest of so many times: what else the machine does adds to a task, also to its CPU time, and takes nothing from it.
    const longest = async (what, doing, times = 1) => {
      const found = [];
      while (found.length < times && !found.some(({ cpu }) => cpu < most)) found.push((await traced(page, doing)).tasks[0]);
      figures.push(`${what} ${found.map(({ cpu, wall }) => `${cpu.toFixed(0)} (${wall.toFixed(0)})`).join(" ")}`);
      check(found.at(-1).cpu < most, `tasks of ${found.map(({ cpu, wall }) => `${cpu} ms of CPU time (${wall} ms)`)} while ${what}, where a thousand rows at once take ${rowsAtOnce} ms`);
    };
    const known = "document.querySelector('.tools [role=status]')?.textContent || ''";
    const rows = "document.querySelectorAll('.long tbody tr[aria-rowindex]').length";
    // More than once, so that it has the browser's code cache, as every load but the first two of a browser has: where all processors are busy
    // it would compile in that one task what it compiles beside it else, at five times the CPU time.
    await longest("loading", async (evaluate, own) => {
      await own.send("Page.navigate", { url: `${given.admin}/topics` });
      await until(async () => Number((await evaluate(known)).replace(/\D/g, "")) >= 10_000 && (await evaluate(rows)) > 5, "10,000 topics");
      await until(async () => Number(await evaluate("document.querySelector('.long').ariaRowCount")) > 10_000, "all their pages");
    }, 8);
    const few = async (evaluate) => check((await evaluate(rows)) < 120, `${await evaluate(rows)} rows in the document`);
    await longest("scrolling", async (evaluate) => {
      await few(evaluate);
      for (let at = 1; at <= 30; at += 1) {
        await evaluate(`document.querySelector(".window").scrollTop = ${at * 12_000}`);
        await page.waitForTimeout(50);
      }
      await until(async () => Number(await evaluate("document.querySelector('.long tbody tr[aria-rowindex]')?.ariaRowIndex")) > 9000, "rows after scrolling");
      await few(evaluate);
    }, 3);
    await longest("searching and sorting", async (evaluate) => {
      await evaluate("document.getElementById('search').focus()");
      await page.keyboard.type("many.0042");
      await until(async () => (await evaluate(known)).startsWith("10 of"), "the search");
      for (let at = 0; at < 9; at += 1) await page.keyboard.press("Backspace");
      for (const column of ["topic", "rate", "used"]) {
        await evaluate(`document.querySelector(".c-${column} button").click()`);
        await until(() => evaluate(`document.querySelector("th.c-${column}").ariaSort !== "none"`), `the order by ${column}`);
      }
    });
    await longest("being refreshed", () => page.waitForTimeout(5000)); // each 2 s
    const asked = page.asked.map((url) => new URL(url)).filter((url) => url.pathname === "/v1/topics").map((url) => url.searchParams);
    check(asked.every((each) => each.get("limit") < 100 && !each.has("cursor")), "the page asks for what is seen, and for no list of all");
    process.stdout.write(`figures longest task, ms of CPU (of wall) time: ${figures.join(", ")}\n`);
    await clean(page);
  },

  // A name is cut before its routing key, or in that key's middle; a telephone shows name, rate, state and culprit; nothing breaks within a word.
  async names_in_lists() {
    const page = await open({ path: "/topics" });
    const row = "tr:has-text('limited now')";
    await page.waitForSelector(row);
    const [name, list] = [await page.locator(`${row} .c-topic`).boundingBox(), await page.locator(".window").boundingBox()];
    check(name.width > 0.2 * list.width, `the name has ${name.width} of ${list.width} px`);
    await please("publish to a long name");
    const long = "tr:has-text('the-end-of-it') .cut";
    await page.fill("#search", "THE-END");
    await page.waitForSelector(long);
    const cut = await page.$eval(long, (each) => [...each.children].map((part) => [part.textContent, part.scrollWidth > part.clientWidth]));
    same(cut.map(([, short]) => short), [true, true, false], `parts of a long name that are cut: ${cut}`);
    same(cut[2][0], "end-of-it" .padStart(10, "-"), "what is never cut off");
    for (const language of ["en", "zh"]) {
      const phone = await open({ width: 390, language, path: "/topics" });
      const cells = await until(() => phone.$$eval("tr:has(.badge.bad) > *", (all) => all.filter((each) => each.offsetWidth).map((each) => each.innerText.trim())).then((all) => all.length && all), "the topic that is refused");
      check(cells.length === 4 && /order\.created/.test(cells[0].replace(/\s/g, "")) && /\/s$/.test(cells[1]) && cells[3] === "127.0.0.1", `name, rate, state, culprit: ${cells}`);
      await picture(phone, `topics-phone-${language}`);
      await visit(phone, "/connections");
      const shown = await until(() => phone.$$eval("tbody tr:has(.badge.bad) > *", (all) => all.filter((each) => each.offsetWidth).map((each) => each.innerText)).then((all) => all.length && all), "the connection that is refused");
      check(shown.length === 4 && /127/.test(shown[0]) && /\/s/.test(shown[2]) && /order\.created/.test(shown[3].replace(/\s/g, "")), `client, state, refused, bottleneck: ${shown}`);
      check((await wider(phone)) <= 0, "nothing is wider than a telephone");
      await clean(phone);
      const wide = await open({ language, path: "/connections" });
      await wide.waitForSelector("tbody tr");
      const lines = await wide.$$eval("tbody :is(th, td)", (all) => all.filter((each) => each.offsetHeight > 48).map((each) => each.innerText));
      same(lines, [], "cells of connections in more than one line");
      await clean(wide);
    }
    await clean(page);
  },

  async hostile_names() {
    const page = await open({ path: "/topics" });
    await until(async () => (await page.textContent(".long")).includes("<img src=x onerror=alert(1)>"), "the name as text");
    same(await page.evaluate("document.querySelectorAll('main img, main script').length"), 0, "elements made of names");
    for (const topic of given.hostile) {
      for (const path of [topicAddress(topic), `/t/amqp/${encodeURIComponent(topic)}`]) {
        await visit(page, path);
        check((await page.innerText(".raw")).includes(topic.slice(-20)), `the topic ${topic.slice(-20)} is shown`);
        await until(async () => (await page.innerText(".figures")).includes("20/s"), `the limit of ${topic.slice(-20)}`);
        check((await wider(page)) <= 0, `${topic.slice(0, 40)} makes the page too wide`);
      }
    }
    await please("connect with hostile names");
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: 844 });
      await visit(page, "/connections");
      await until(async () => (await page.textContent("main")).includes("<img src=x onerror=alert(1)>"), "a client's name as text");
      check((await wider(page)) <= 0, `clients' names make the page too wide at ${width} px`);
      for (const address of await page.$$eval("tbody th a", (all) => all.slice(0, 4).map((each) => each.getAttribute("href")))) {
        await visit(page, address);
        check((await page.textContent("main")).includes("<img src=x onerror=alert(2)>"), "the user as text");
        same(await page.evaluate("document.querySelectorAll('main img, main script').length"), 0, "elements made of clients' names");
        check((await wider(page)) <= 0, `a connection is too wide at ${width} px`);
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
    await until(() => page.evaluate("document.activeElement.id === 'token'"), "the focus on the form"); // waitForFunction would look again by eval()
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
    await until(async () => (await page.inputValue("#edit-messages")) === "10/s", "the preset");
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
      await page.waitForSelector("main h1");
      const audit = async (what) => {
        same(await axe(page), [], `axe-core, ${what}, ${dark ? "dark" : "light"}`);
      };
      await audit("sign in");
      await enter(page, given.tokens.admin);
      for (const path of screens()) {
        await visit(page, path);
        await audit(path);
      }
      await page.context().close();
    }
  },

  async widths_and_languages() {
    for (const language of ["en", "zh"]) {
      const page = await open({ width: 390, height: 844, language, signIn: "admin" });
      for (const path of screens()) {
        await page.setViewportSize({ width: 390, height: 844 });
        await visit(page, path);
        for (const width of [390, 1280]) {
          await page.setViewportSize({ width, height: 844 });
          check((await wider(page)) <= 0, `${path} at ${width} px in ${language} scrolls sideways by ${await wider(page)} px`);
          const text = await page.innerText("main");
          check(!/\{\w+\}|undefined|NaN|\[object/.test(text), `${path} in ${language}: ${text.match(/.{0,30}(\{\w+\}|undefined|NaN|\[object).{0,30}/)?.[0]}`);
        }
        await page.setViewportSize({ width: 390, height: 844 });
        same(await page.evaluate(`(${brokenWords})()`), [], `words that are broken on ${path} at 390 px in ${language}`);
        if (language === "zh") check(/[\u4e00-\u9fff]{2}/.test(await page.innerText("h1")) || path.startsWith("/t"), `${path}: ${await page.innerText("h1")}`);
      }
      await page.setViewportSize({ width: 390, height: 844 });
      await visit(page, "/");
      await page.click(".menu");
      await page.click("#nav a[href='/topics']");
      await until(async () => page.url().endsWith("/topics"), "the menu");
      await clean(page);
      await page.context().close();
    }
  },

  async viewer() {
    const page = await open({ signIn: "viewer" });
    await page.waitForSelector(".alarm");
    for (const path of screens()) {
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
    await visit(page, `${topicAddress()}?act=127.0.0.1`); // a link that an operator has sent
    await page.waitForSelector(".account");
    await page.waitForTimeout(300);
    same(await page.locator("dialog").count(), 0, "questions that the API would refuse");
    await clean(page);
  },

  // What a limit holds is said as it is: how much, since when, for how long, whose, why nothing is refused, and what ends it.
  async held_topic() {
    await please("hold a topic");
    const told = async (page, path, selector, pattern, what) => {
      await visit(page, path);
      await until(async () => pattern.test((await page.innerText(selector).catch(() => "")).replace(/\s+/g, " ")), what);
    };
    const [held, long] = [given.topic.replace("created", "held"), String.raw`(\d+ min )?\d+ (s|min)`];
    const page = await open();
    const english = new RegExp(`[\\d,]+ waiting, the oldest has waited ${long}, a new one will wait ${long}; nothing is refused, as the publisher uses no confirms and cannot be told: they wait in memory.*100 % of that is from 127\\.0\\.0\\.1 \\(billing\\)`);
    await told(page, "/", ".alarm:has-text('order.held')", english, "the alarm");
    check(!/– of that|refused of/.test(await page.innerText(".alarms")), "a share that is not known is not shown");
    await picture(page, "held-alarm");
    await told(page, topicAddress(held), ".account", english, "the account on the topic's screen");
    await told(page, topicAddress(held), ".account", /It ends when less than 10\/s comes/, "what ends it");
    await told(page, topicAddress(held), ".account", /Killed, or without its broker, it loses that; without confirms the publisher does not learn of it/, "what becomes of what waits when the gateway ends");
    check(/without|no confirms/.test(await page.innerText(".level")), "the action's sentence");
    await picture(page, "held-topic");
    await told(page, `/t/amqp/${encodeURIComponent(held)}`, ".account", english, "the team's page");
    await visit(page, topicAddress(held));
    await page.click(".account button:has-text('close its connections')");
    await until(async () => /Close \d+ connections of .* What waits of it is given up\./s.test(await page.innerText("dialog").catch(() => "")), "what closing costs");
    await page.keyboard.press("Escape");
    await please("try a limit");
    const tried = given.topic.replace("created", "tried");
    await told(page, topicAddress(tried), ".account", /^only counted, all passes nothing is limited: 2\/s \(shadow\) is only tried, and would refuse \d+ % · since \d\d:\d\d:\d\d · 100 % of that is from 127\.0\.0\.1 \(mailer\) What to do: nothing/, "a limit in shadow mode, since when and whose");
    same(await page.locator(".account button").count(), 0, "ways to stop a client of which nothing is stopped");
    check(/Wait –/.test((await page.innerText(".figures")).replace(/\s+/g, " ")), "nothing waits for it");
    await please("block the broker");
    await told(page, "/", ".alarms", /the broker 127\.0\.0\.1:\d+ has taken no messages for \d+ s: “low on memory”\. \d+ of \d+ connections have to wait \(connection\.blocked\), and their messages stay with the publishers\. What to do: give the broker what it lacks/, "a blocked broker: since when, why, what to do");
    check((await page.innerText(".health")).includes("broker blocks publishers"), "the badge");
    await please("unblock the broker");
    await until(async () => !(await page.innerText(".alarms")).includes("low on memory"), "the broker goes on");
    await clean(page);
    const phone = await open({ width: 390, language: "zh", dark: true });
    await told(phone, "/", ".alarm:has-text('order.held')", /条等待中，最早的已等待 .*，新来的需等待 .*；发布方未启用 confirm，无法告知，因此不拒绝/, "the same in Chinese");
    check((await wider(phone)) <= 0, "nothing is wider than a telephone");
    await picture(phone, "held-phone-zh");
    await clean(phone);
  },

  // From the alarm to the client that makes most of it: limited alone, on this topic or everywhere, for a time; taken back; its connections closed.
  async act_on_the_culprit() {
    const page = await open();
    const rules = async () => (await (await page.request.get(`${given.admin}/v1/rules`)).json()).items.filter((each) => each.live);
    await page.click(".alarm:has-text('order.created') a:has-text('limit client')");
    await page.waitForSelector("dialog #act-messages");
    same(await page.inputValue("#act-messages"), "10/s", "half of the topic's limit");
    await until(async () => /127\.0\.0\.1 may send 10\/s at most, orders \/ order\.created; all others keep/.test(await page.innerText("dialog .preview")), "the preview");
    check(/^sluice rules add limit-127\.0\.0\.1-on-orders-order\.created-\w+ --match protocol=amqp --match vhost=\/ --match exchange=orders --match routing_key=order\.created .*--match client=127\.0\.0\.1 --per client --messages 10\/s --for 30m --reason '\.\.\.'$/.test(await page.innerText("dialog .command code")), await page.innerText("dialog .command code"));
    same(await rules(), [], "rules by a preview");
    await page.evaluate(AXE);
    const { violations } = await page.evaluate("axe.run(document.querySelector('dialog'))");
    same(violations.map((each) => each.id), [], "accessibility of the dialog");
    await picture(page, "act");
    await page.fill("#act-messages", "1O/s");
    await until(async () => /unknown unit/.test(await page.evaluate("document.querySelector('dialog').innerText")), "a mistyped limit");
    await page.fill("#act-messages", "5/s");
    await page.fill("#why", "runaway job");
    await page.click("dialog button[type=submit]");
    await page.waitForSelector("#act-undo");
    const [rule] = await rules();
    same([rule.per, rule.match.client, rule.limit.messages, rule.live.reason], ["client", "127.0.0.1", "5/s", "runaway job"], "the rule in force");
    same(new URL(page.url()).search, "", "the address afterwards");
    await page.click("#act-undo");
    await until(async () => (await rules()).length === 0, "the rule to be taken back");
    const named = `${given.admin}/v1/rules/${rule.name}?force=1`;
    const theirs = await page.request.put(named, { data: { match: rule.match, per: "client", limit: { messages: "5/s" }, reason: "a colleague's" }, headers: { Origin: given.admin } });
    check(theirs.ok(), await theirs.text());
    await page.click(".account button:has-text('limit client')");
    await page.fill("dialog #act-messages", "20/s");
    await until(async () => /higher than that of now: 5\/s \(rule limit-127/.test(await page.innerText("dialog .preview")), "that it is higher");
    await page.click("dialog button[type=submit]");
    await until(async () => (await rules())[0].limit.messages === "20/s", "the limit in the place of the colleague's");
    await page.click("#act-undo");
    await until(async () => (await rules())[0]?.limit.messages === "5/s", "the colleague's limit to be back");
    same((await rules())[0].live.reason, "a colleague's", "its reason");
    check((await page.request.delete(named, { headers: { Origin: given.admin } })).ok(), "the colleague's limit taken back");
    const mine = await page.request.put(`${given.admin}/v1/limits/user/shop?force=1`, { data: { bytes: "5 MiB/s", reason: "a colleague's" }, headers: { Origin: given.admin } });
    check(mine.ok(), await mine.text());
    await page.click(".account button:has-text('limit client')");
    await page.selectOption("#act-who", "user");
    await page.selectOption("#act-where", "all");
    await until(async () => (await page.innerText("dialog .command code")) === "sluice limits set user shop --messages 10/s --for 30m --reason '...'", "the command of a user everywhere");
    await page.click("dialog button[type=submit]");
    await page.waitForSelector("#act-undo");
    const saved = async () => (await (await page.request.get(`${given.admin}/v1/limits/user/shop`)).json()).override;
    same([(await saved()).messages, (await saved()).bytes], ["10/s", "5MiB/s"], "the user's limit");
    await page.click("#act-undo");
    await until(async () => !(await saved())?.messages, "the user's limit to be taken back");
    same([(await saved())?.bytes, (await saved())?.reason], ["5MiB/s", "a colleague's"], "what had been there before");
    await page.click("button[aria-label='close its connections …: 127.0.0.1'] >> nth=0");
    await page.waitForSelector("dialog");
    check(/Close \d+ connections of 127\.0\.0\.1/.test(await page.innerText("dialog")), "whose connections, and how many");
    await page.keyboard.press("Escape");
    await clean(page);
  },

  // RocketMQ's culprit is often a group, which has several addresses: it is limited as one, on this topic or everywhere.
  async limit_a_group() {
    const page = await open({ path: topicAddress("orders", "rocketmq") });
    const command = () => page.innerText("dialog .command code");
    const way = ".account button:has-text('limit client')";
    await until(async () => /100 % of that is from 127\.0\.0\.1 \(producers\)/.test(await page.innerText(".account").catch(() => "")), "the group, of the account");
    for (const [where, words, saved] of [
      ["topic", "sluice rules add limit-producers-on-orders --match protocol=rocketmq --match topic=orders --match operation=produce --match group=producers --per group", async () => (await (await page.request.get(`${given.admin}/v1/rules`)).json()).items.find((each) => each.live)?.limit.messages],
      ["all", "sluice limits set group producers", async () => (await (await page.request.get(`${given.admin}/v1/limits/group/producers`)).json()).override?.messages],
    ]) {
      await page.click(way);
      await page.selectOption("#act-who", "group");
      await page.selectOption("#act-where", where);
      await page.fill("#act-messages", "0.3k/min");
      await until(async () => (await command()).replace(/(-on-orders)-\w+/, "$1") === `${words} --messages 0.3k/min --for 30m --reason '...'`, "the command");
      const stops = /it stops so much of what comes: ([\d.]+)\/s \/ ([\d.]+)\/s\. 127\.0\.0\.1 ([\d.]+)\/s \/ ([\d.]+)\/s/.exec(await page.innerText("dialog .preview"));
      if (where === "topic") {
        const [, over, all, , ofOne] = stops;
        check(Math.abs(all - over - 5) < 1 && all === ofOne && all > 20, `what it would stop of whom: ${over} of ${all}, ${ofOne}`);
      } else same(stops, null, "what it would stop of other topics, too");
      await page.click("dialog button[type=submit]");
      await page.waitForSelector("#act-undo");
      same(await saved(), "5/s", "the group's limit");
      await page.click("#act-undo");
      await until(async () => !(await saved()), "the group's limit to be taken back");
    }
    await clean(page);
  },

  // A screen that is left while its change is on its way: what became of it is told wherever one is; so is that it failed.
  async left_while_applying() {
    for (const fails of [false, true]) {
      const page = await open({ path: `${topicAddress()}?edit=1` });
      await page.waitForSelector(".presets button");
      await page.click(".presets button:has-text('twice')");
      let go;
      const held = new Promise((resolve) => (go = resolve));
      await page.route(/\/v1\/limits\/amqp\/[^?]+(\?literal=1)?$/, async (route) => {
        if (route.request().method() !== "PATCH") return route.continue();
        await held;
        return fails ? route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ detail: "the disk is full" }) }) : route.continue();
      });
      await page.click("button:has-text('Apply for')");
      await page.click("#nav a[href='/brokers']");
      await until(async () => (await page.innerText("h1")) === "Brokers and listeners", "another screen");
      go();
      await page.waitForSelector(".told");
      check((await page.innerText(".told")).includes(fails ? "orders / order.created: nothing was changed. the disk is full" : "orders / order.created: in force is 40/s"), await page.innerText(".told"));
      await page.click(".told button");
      await page.waitForSelector(".told", { state: "detached" });
      const saved = await (await page.request.get(`${given.admin}/v1/limits/amqp/${given.topic}`)).json();
      same(saved.override?.messages, "40/s", "what is in force");
      page.faults = page.faults.filter((each) => !each.includes("503"));
      await clean(page);
    }
  },

  // A browser whose clock is three hours fast or slow, and an admin port that takes seconds for an answer.
  async wrong_clock_and_slow_port() {
    const wrong = (hours) => open({ script: `const right = Date.now; Date.now = () => right() + ${hours} * 3600e3` });
    const fast = await wrong(3);
    await until(async () => /over its limit for \d+ (s|min)/.test(await fast.innerText(".alarm")), "since when, by the gateway's clock");
    const brief = await fast.request.put(`${given.admin}/v1/limits/amqp/${given.topic}?force=1`, { data: { messages: "15/s", expires: "30m", reason: "for a while" }, headers: { Origin: given.admin } });
    check(brief.ok(), await brief.text());
    await until(async () => /ends in (29|30) min/.test(await fast.innerText("main")), "the end of a live change, by the gateway's clock");
    await visit(fast, topicAddress());
    await until(async () => /since \d\d:\d\d:\d\d/.test(await fast.innerText(".account")), "the account");
    await clean(fast);
    const page = await wrong(-3);
    await until(async () => /over its limit for \d+ (s|min)/.test(await page.innerText(".alarm")), "since when, by the gateway's clock");
    await please("limit its bytes, too");
    await until(async () => /no end/.test(await page.innerText("main")), "the live change");
    await page.route("**/v1/topics?**", async (route) => {
      await new Promise((resolve) => setTimeout(resolve, 3000));
      await route.continue().catch(() => {});
    });
    await page.click("#nav a[href='/topics']");
    await page.waitForSelector("main[aria-busy]"); // a screen that waits for its answer says so
    await page.fill("#search", "order.cre");
    await until(async () => (await page.innerText(".tools")).includes("1 of"), "the search, late");
    await page.click("#nav a[href='/brokers']");
    await until(async () => (await page.innerText("h1")) === "Brokers and listeners", "another screen, while an answer is on its way");
    await clean(page);
  },

  async addresses_and_size() {
    const sum = (page, field) => page.evaluate(`performance.getEntriesByType("resource").filter((each) => each.name.includes("/dashboard/")).reduce((sum, each) => sum + each.${field}, 0)`);
    // A page that never comes to load the other screens' modules, however long the machine takes for the first.
    const still = await open({ script: "const begin = setTimeout; window.setTimeout = (call, after, ...given) => (after >= 1000 ? 0 : begin(call, after, ...given))" });
    await still.waitForSelector(".plot canvas");
    const first = [await sum(still, "encodedBodySize"), await sum(still, "decodedBodySize")];
    await still.context().close();
    const page = await open();
    await page.click(".alarm a.topic");
    await page.click("text=page for the team");
    for (const last of ["advice_en", "configuration"]) await until(() => page.evaluate(`performance.getEntriesByType("resource").some((each) => each.name.endsWith("/${last}.js"))`), "the modules of all screens");
    const all = [await sum(page, "encodedBodySize"), await sum(page, "decodedBodySize")];
    const shown = [];
    const spent = [];
    for (let at = 0; at < 5; at += 1) {
      const { events, tasks } = await traced(page, async (evaluate, own) => {
        await own.send("Page.navigate", { url: `${given.admin}/` });
        await until(() => evaluate("location.pathname === '/' && performance.getEntriesByName('first-contentful-paint').length > 0 && document.querySelector('.figures') !== null"), "the first screen");
        shown.push(await evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"));
      });
      const paint = events.filter((each) => each.name === "firstContentfulPaint").at(-1);
      const start = events.filter((each) => each.name === "navigationStart" && each.pid === paint.pid && each.ts < paint.ts).at(-1);
      spent.push(tasks.filter((each) => each.pid === paint.pid && each.ts >= start.ts && each.ts < paint.ts).reduce((time, each) => time + each.cpu, 0));
    }
    const [cpu, rowsAtOnce] = [Math.min(...spent), await yardstick(page)];
    const kB = (bytes) => Math.round(bytes / 1000);
    process.stdout.write(`figures sent (plain), kB: first screen ${first.map(kB).join(" (")}), all screens ${all.map(kB).join(" (")})\n`);
    process.stdout.write(`figures first contentful paint ${shown.map(Math.round).join(", ")} ms; of these ${spent.map(Math.round).join(", ")} ms of CPU time, where a thousand rows at once take ${Math.round(rowsAtOnce)}\n`);
    check(all[0] > 30_000 && all[0] < 105_000 && first[0] < 70_000, `${all} bytes are sent`);
    check(all[1] < 276_000 && first[1] < 180_000, `${all} bytes`);
    check(cpu < rowsAtOnce / 2, `the first paint took ${cpu} ms of CPU time, where a thousand rows at once take ${rowsAtOnce} ms`);
    await visit(page, topicAddress());
    await page.click("#nav a[href='/brokers']");
    await until(async () => (await page.innerText("h1")) === "Brokers and listeners", "the screen");
    same(await page.evaluate("document.activeElement.id"), "title", "the focus on the new screen's title");
    await page.goBack();
    await until(async () => (await page.innerText("h1")).includes("order.created"), "the screen before");
    for (const path of screens()) {
      await visit(page, path);
      const twin = await page.getAttribute(".twin a", "href");
      const answer = await page.request.get(given.admin + twin);
      same(answer.status(), 200, `${twin}, the twin of ${path}`);
      const csv = await page.$(".twin a[download]");
      if (csv) {
        const list = await page.request.get(given.admin + (await csv.getAttribute("href")));
        same([list.status(), list.headers()["content-type"].split(";")[0]], [200, "text/csv"], `CSV of ${path}`);
      } else if (path === "/brokers" || path === "/configuration") {
        const [download] = await Promise.all([page.waitForEvent("download"), page.click(".twin button")]);
        const lines = readFileSync(await download.path(), "utf8").split("\r\n");
        check(lines.length > 2 && /^"(listener|setting)",/.test(lines[0]) && lines[1].startsWith(path === "/brokers" ? '"rabbit","amqp"' : '"'), `CSV of ${path}: ${lines.slice(0, 2)}`);
      } else same(path, "/", "a screen without CSV beside its title"); // the overview's list has it
    }
    await clean(page);
  },

  // What the learned quotas do, and candidates: put in force, back, and made the limit.
  async quotas_and_candidates() {
    const page = await open();
    const limit = async () => {
      const { levels } = await (await page.request.get(`${given.admin}/v1/limits/amqp/${given.topic}`)).json();
      const [level] = levels.filter((each) => each.per === "topic");
      return [level.limit.messages, level.origin];
    };
    await please("publish quotas");
    await visit(page, "/quotas");
    await until(async () => (await page.innerText("main")).includes("Tried"), "the trial");
    same(await limit(), ["12/s", "quota"], "the quota in force");
    await page.click("button:has-text('Put these in force')");
    await page.fill("#why", "tried for a night");
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { state: "detached" });
    same(await limit(), ["12/s", "quota"], "the quota after a no");
    const answer = async (button, reason) => {
      await page.click(`main button:has-text('${button}')`);
      await page.fill("#why", reason);
      await page.click("dialog button[type=submit]");
      await page.waitForSelector("dialog", { state: "detached" });
    };
    await answer("Put these in force", "tried for a night");
    same(await limit(), ["18/s", "quota"], "the quota that was tried");
    await until(async () => (await page.innerText(".cards")).includes("tried for a night"), "the reason on the page");
    same(await page.evaluate("import('/dashboard/format.js').then((f) => [f.limitText({ messages: '47.6269/s', bytes: '106255B/s' }), f.limitText({ messages: '500/s', bytes: '10MiB/s' }), f.readable('30k/min')])"), ["48/s · 104 KiB/s", "500/s · 10MiB/s", "30k/min"], "limits in words");
    await answer("Put the quotas before these back", "too much");
    same(await limit(), ["12/s", "quota"], "the quota before");
    await visit(page, `/quotas/amqp/${encodeURIComponent(given.topic)}`);
    await until(async () => (await page.innerText("main")).includes("steady"), "the evidence of a topic");
    await visit(page, "/quotas");
    await answer("Make it the limit", "it has been tried");
    const rule = await (await page.request.get(`${given.admin}/v1/rules/amqp-topics`)).json();
    same([rule.limit.messages, rule.candidate], ["30/s", null], "the rule");
    await until(async () => (await page.innerText("main")).includes("No rule has a candidate"), "no candidate any more");
    await visit(page, "/changes");
    const history = await page.innerText("main");
    for (const reason of ["tried for a night", "too much", "it has been tried"]) check(history.includes(reason), `${reason} in the history`);
    await clean(page);
  },

  // Two operators at once: what was put in force in between is not overwritten.
  async lost_race_of_quotas() {
    const page = await open();
    await please("publish quotas");
    await visit(page, "/quotas");
    await page.click("button:has-text('Put these in force')");
    await page.waitForSelector("dialog[open]");
    await please("publish other quotas");
    await page.fill("#why", "too late");
    await page.click("dialog button[type=submit]");
    await page.waitForSelector("dialog .fault");
    same(await page.inputValue("#why"), "too late", "what was typed");
    const published = await (await page.request.get(`${given.admin}/v1/quotas/status`)).json();
    same(published.published.reason, "the other operator", "what is in force");
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { state: "detached" });
    await clean(page);
  },

  async roll_back() {
    const page = await open();
    const limit = async () => (await (await page.request.get(`${given.admin}/v1/limits/amqp/${given.topic}`)).json()).override?.messages ?? null;
    await please("change the limit");
    await please("change it again");
    same(await limit(), "44/s", "the limit of the second change");
    await visit(page, "/changes");
    await page.click("button[aria-label='Roll back to before this 2']");
    const text = await page.innerText("dialog");
    check(text.includes("messages: 44/s") && text.includes("messages: 33/s"), `what changes: ${text}`);
    await page.fill("#why", "it was right before");
    await page.click("dialog button[type=submit]");
    await page.waitForSelector("dialog", { state: "detached" });
    same(await limit(), "33/s", "the limit of the first change");
    await until(async () => (await page.innerText("main")).includes("it was right before"), "the way back in the history");
    await visit(page, "/changes/1");
    check((await page.innerText("main")).includes("somebody else") && !(await page.innerText("main")).includes("44/s"), "one change at its own address");
    await clean(page);
  },

  async configuration() {
    const page = await open({ signIn: "admin", path: "/configuration" });
    const reload = "section:has(#reload-title)";
    await settled(page);
    await page.click(`${reload} button:has-text('Dry run')`);
    await until(async () => (await page.innerText(reload)).includes("Nothing changes."), "a dry run that finds nothing");
    await please("raise the limit in the file");
    await page.click(`${reload} button:has-text('Dry run')`);
    await until(async () => (await page.innerText(reload)).includes("Takes effect:"), "what the dry run says");
    const rate = async () => (await (await page.request.get(`${given.admin}/v1/rules/amqp-topics`)).json()).limit.messages;
    same(await rate(), "20/s", "the limit after a dry run");
    await page.click(`${reload} button:has-text('Reload now')`);
    await until(async () => (await page.innerText(reload)).includes("Reloaded."), "the reload");
    same(await rate(), "25/s", "the limit after the reload");
    await please("break the file");
    await page.click(`${reload} button:has-text('Dry run')`);
    await until(async () => /limits\.yaml:\d+/.test(await page.innerText(reload)), "the fault with its place");
    same(await page.locator(`${reload} button:has-text('Reload now')`).count(), 0, "a way to reload what is wrong");
    same(await rate(), "25/s", "the limit that holds on");
    await clean(page);
  },

  async log_level() {
    const page = await open({ signIn: "admin", path: "/configuration" });
    const part = "section:has(#log-title)";
    const level = async () => {
      const found = await (await page.request.get(`${given.admin}/v1/log/level`)).json();
      return [found.level, found.live];
    };
    await page.waitForSelector(`${part} .badge`);
    same(await level(), ["info", false], "the level at first");
    await page.selectOption("#level", "debug");
    await page.selectOption("#level-for", "1h");
    await page.click(`${part} button:has-text('Set')`);
    await until(async () => /debug\s+until (\d\d-\d\d )?\d\d:\d\d, then info/.test(await page.innerText(part)), "the level, and its end");
    same(await level(), ["debug", true], "the level");
    await page.click(`${part} button:has-text('As configured')`);
    await until(async () => /info\s+as configured/.test(await page.innerText(part)), "the level as configured");
    same(await level(), ["info", false], "the level at last");
    await clean(page);
  },

  async tokens() {
    const page = await open({ signIn: "admin", path: "/configuration" });
    const part = "section:has(#tokens-title)";
    const asked = async (token) => (await fetch(`${given.admin}/v1/status`, { headers: { Authorization: `Bearer ${token}` } })).status;
    await until(async () => (await page.innerText(part)).includes("team"), "the list");
    await page.click(`${part} button:has-text('New token')`);
    await page.fill("#token-expires", "soon");
    await page.click("dialog button[type=submit]");
    await page.waitForSelector("dialog .error, dialog .fault");
    same(await page.inputValue("#token-expires"), "soon", "what was typed");
    await page.fill("#token-name", "night-shift");
    await page.selectOption("#token-role", "operator");
    await page.fill("#token-expires", "8h");
    await page.fill("#why", "on call");
    await page.click("dialog button[type=submit]");
    await page.waitForSelector("dialog", { state: "detached" });
    const token = (await page.innerText(`${part} pre`)).trim();
    check(token.length > 20, "the token");
    same(await asked(token), 200, "what the API says to it");
    await until(async () => /night-shift\s+operator/.test(await page.innerText(`${part} table`)), "the new token in the list");
    check(!page.asked.some((url) => url.includes(token)), "the token stands in no address");
    await page.click(`${part} button:has-text('I have it')`);
    await until(async () => !(await page.content()).includes(token), "the token is shown once");
    await visit(page, "/configuration");
    await until(async () => (await page.innerText(part)).includes("night-shift"), "the list");
    check(!(await page.content()).includes(token), "the token is not shown again");
    await page.click("button[aria-label='Revoke: night-shift']");
    await page.fill("#why", "shift over");
    await page.click("dialog button[type=submit]");
    await page.waitForSelector("dialog", { state: "detached" });
    await until(async () => (await asked(token)) === 401, "the token to be refused");
    await until(async () => !(await page.innerText(`${part} table`)).includes("night-shift"), "the list without it");
    await clean(page);
  },

  async close_a_connection() {
    const page = await open({ path: "/connections" });
    const row = "tr:has-text('checkout')";
    await page.waitForSelector(row);
    await until(async () => /refused\s+\d+(\.\d+)?\/s\s+a limit: orders \/ order\.created/.test((await page.$eval("tbody tr", (each) => [...each.children].map((cell) => cell.textContent).join(" ")))), "the flooder first, and how much of it is refused");
    const detail = await page.context().newPage();
    await detail.goto(given.admin + (await page.getAttribute(`tbody tr >> nth=0 >> a`, "href")));
    await until(async () => /refused It is over a limit: [\d.]+\/s of its messages are refused now, [\d,]+ since it connected/.test(await detail.innerText("main .card").catch(() => "")), "the state in words");
    await detail.close();
    const address = (await page.innerText(`${row} th a`)).trim();
    const label = `Close: ${address}`;
    await page.click(`button[aria-label='${label}']`);
    check((await page.innerText("dialog")).includes(address), "whose connection it is");
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { state: "detached" });
    same(await page.evaluate("document.activeElement.ariaLabel"), label, "the focus after a no");
    const there = async () => (await (await page.request.get(`${given.admin}/v1/connections?q=${address}`)).json()).items.some((each) => each.client === address);
    check(await there(), "the connection after a no");
    await page.click(`button[aria-label='${label}']`);
    await page.fill("#why", "it floods");
    await page.click("dialog button[type=submit]");
    await until(async () => !(await there()), "the connection to be closed");
    await until(async () => !(await page.innerText("main")).includes(address), "the list without it");
    await clean(page);
  },

  async support_bundle() {
    const page = await open({ signIn: "admin", path: "/configuration" });
    const part = "section:has(#bundle-title)";
    await settled(page);
    check((await page.innerText(part)).includes("made there"), "why it is a command");
    await please(`run ${(await page.innerText(`${part} code`)).trim()}`);
    await clean(page);
  },

  async advice() {
    for (const [language, words] of [["en", "NackError from basic_publish"], ["zh", "basic_publish 抛出 NackError"]]) {
      const page = await open({ signIn: "viewer", path: `/t/amqp/${encodeURIComponent(given.topic)}`, language });
      await until(async () => (await page.innerText("main")).includes(words), `what pika shows, in ${language}`);
      if (language === "zh") {
        const options = await page.$$eval("#library option", (all) => all.map((each) => each.value).filter(Boolean));
        check(options.length > 5, "libraries to choose from");
        for (const option of options) {
          await page.selectOption("#library", option);
          await until(async () => (await page.innerText(".card h3")) === option, option);
          for (const text of await page.$$eval("section:has(#library-title) dd", (all) => all.map((each) => each.textContent))) check(/[\u4e00-\u9fff]/.test(text) || /^[\w.:'\[\] ]+$/.test(text), `${option} in Chinese: ${text}`);
        }
        await page.click("button:has-text('EN')");
        await until(async () => (await page.innerText("main")).includes("What your library shows"), "the other language");
        await until(async () => !/[\u4e00-\u9fff]/.test(await page.innerText("section:has(#library-title)")), "the advice in the other language");
      }
      await clean(page);
      await page.context().close();
    }
  },

  // What could not be fetched is fetched once it can be: the texts of the advice, and what draws charts.
  async retries() {
    const page = await open({ signIn: null });
    let away = true;
    const tried = new Map();
    for (const file of ["messages/advice_en.js", "vendor/uplot-1.6.32/uPlot.iife.min.js"]) {
      tried.set(file, 0);
      await page.route(`**/dashboard/${file}`, (route) => {
        tried.set(file, tried.get(file) + 1);
        return away ? route.abort() : route.continue();
      });
    }
    page.faults.length = 0;
    await page.goto(`${given.admin}/t/amqp/${encodeURIComponent(given.topic)}`);
    await enter(page, given.tokens.viewer);
    await until(async () => (await page.locator(".readout").count()) && (await page.innerText(".readout")).includes("cannot be reached"), "a chart that cannot be drawn says so");
    await until(() => [...tried.values()].every((count) => count > 1), "both to be tried again");
    check((await page.locator(".plot canvas").count()) === 0 && !(await page.innerText("main")).includes("NackError"), "neither is there");
    away = false;
    await page.waitForSelector(".plot canvas");
    await until(async () => (await page.innerText("main")).includes("NackError from basic_publish"), "the advice");
    same(await page.innerText(".readout"), "", "what the chart says");
    page.faults = page.faults.filter((fault) => !/ERR_FAILED/.test(fault));
    await clean(page);
  },

  // An upgrade under open pages: the tab that signs in is of the new version at once, another one says that it is of the old.
  async upgrade() {
    const page = await open();
    const other = await page.context().newPage();
    await other.goto(given.admin);
    await other.waitForSelector(".figures");
    await other.route("**/v1/**", (route) => route.abort()); // it hears nothing before the first has signed in
    await please("stop");
    await please("start as another version");
    await page.waitForSelector("#token");
    await page.route(`${given.admin}/`, (route) => setTimeout(() => route.continue(), 2000)); // meanwhile the old page is drawn on
    await enter(page, given.tokens.operator);
    await until(async () => (await page.innerText("h1").catch(() => "")) === "Overview of the second", "the new version");
    check(!(await page.innerText("body")).includes("was upgraded"), "the new page is not told");
    await other.unroute("**/v1/**");
    await until(async () => (await other.innerText("body")).includes("was upgraded"), "the other tab to be told");
    same(await other.innerText("h1"), "Overview", "what the other tab is made of");
    await until(async () => !(await other.innerText("body")).includes("was lost"), "its numbers go on");
    await other.click("button:has-text('Load it again')");
    await until(async () => (await other.innerText("h1").catch(() => "")) === "Overview of the second", "the new version in the other tab");
    await clean(page);
  },

  // A worker that has not answered is named, for as long.
  async missing_worker() {
    const page = await open();
    await page.waitForSelector(".plot canvas");
    await until(async () => (await page.locator(".missing").count()) === 0, "both workers have answered");
    await please("stop a worker");
    await until(async () => (await page.locator(".missing").count()) && /worker [12],/.test(await page.innerText(".missing")), "the worker that is missing");
    await please("let the worker go on");
    await until(async () => (await page.locator(".missing").count()) === 0, "the sum of both");
    await clean(page);
  },

  async fleet() {
    const page = await open();
    await until(async () => (await page.innerText(".health")).includes("fleet shop"), "the fleet");
    await until(async () => (await page.innerText("section:has(#chart-title)")).includes("The fleet shop has 1 more"), "whom the chart does not show");
    const cells = async (row) => (await page.locator(`section:has(#fleet-title) tbody tr:nth-child(${row}) :is(th, td)`).allInnerTexts()).map((text) => text.trim());
    await until(async () => (await page.locator("section:has(#fleet-title) tbody tr").count()) === 3, "the sum, and each gateway");
    const number = (text) => Number.parseFloat(text.replace("k", "e3")); // "1.2k/s"
    await until(async () => {
      const [sum, one, other] = [await cells(1), await cells(2), await cells(3)];
      check(sum[0] === "Sum" && one[0] === "one" && other[0] === "other", [sum, one, other]);
      return number(one[1]) > 0 && number(other[1]) > 0 && Math.abs(number(sum[1]) - number(one[1]) - number(other[1])) <= 0.02 * number(sum[1]) + 1;
    }, "the sum of what comes to both");
    await please("stop the other gateway");
    await until(async () => (await page.innerText("section:has(#fleet-title)")).includes("told nothing for 5 s: 1 (other)"), "whom the sum lacks");
    check((await page.locator("section:has(#fleet-title) tbody tr").count()) === 2, "the sum, and the one that is left");
    await please("let the other gateway go on");
    await until(async () => (await page.locator("section:has(#fleet-title) tbody tr").count()) === 3, "the other gateway is back");
    await until(async () => !(await page.innerText("section:has(#fleet-title)")).includes("told nothing"), "all are in the sum");
    await clean(page);
  },

  // A browser has six connections to a gateway: a stream for each tab would stop the seventh.
  async many_tabs() {
    const page = await open();
    const streams = async () => Number(/^sluice_admin_streams (\d+)/m.exec(await (await page.request.get(`${given.admin}/metrics`)).text())[1]);
    const tabs = [page];
    while (tabs.length < 9) {
      const tab = await page.context().newPage();
      tab.on("pageerror", (error) => page.faults.push(String(error)));
      await tab.goto(`${given.admin}${tabs.length % 2 ? "/" : topicAddress()}`);
      tabs.push(tab);
    }
    for (const tab of tabs) {
      await tab.waitForSelector(".figures");
      const before = await tab.innerText(".figures");
      await until(async () => (await tab.innerText(".figures")) !== before, "numbers that move in each tab");
    }
    await until(async () => (await streams()) === 1, "one stream for nine tabs");
    for (const tab of tabs.slice(1)) await tab.close();
    await page.addInitScript("delete globalThis.SharedWorker"); // as in Android's browser
    await page.reload();
    await page.waitForSelector(".figures");
    check(await page.evaluate("globalThis.SharedWorker === undefined"), "a browser without shared workers");
    const alone = await page.innerText(".figures");
    await until(async () => (await page.innerText(".figures")) !== alone, "numbers that move without shared workers");
    await until(async () => (await streams()) === 1, "the stream of the tab that is left");
    await page.goto("about:blank");
    const token = { headers: { Authorization: `Bearer ${given.tokens.viewer}` } };
    await until(async () => /^sluice_admin_streams 0$/m.test(await (await fetch(`${given.admin}/metrics`, token)).text()), "no stream of tabs that are closed");
    await clean(page);
  },

  // A worker that cannot be loaded, and after it one that never says anything: the page says that it is lost, and takes another.
  async dead_worker() {
    const page = await open({ signIn: null });
    await page.addInitScript(() => {
      const Real = globalThis.SharedWorker;
      const bad = ["/dashboard/missing.js", "/dashboard/vendor/uplot-1.6.32/uPlot.iife.min.js"];
      globalThis.made = [];
      globalThis.SharedWorker = function (address, options) {
        const file = bad.shift() || address;
        globalThis.made.push(`${file} ${options.name}`);
        return new Real(file, options);
      };
    });
    await page.reload();
    await enter(page, given.tokens.operator);
    const made = () => page.evaluate("globalThis.made");
    for (const number of [1, 2]) {
      await until(async () => (await made()).length === number, `worker ${number}`);
      await page.waitForSelector(".lost");
    }
    await until(async () => !(await page.$(".lost")), "the stream of the third worker");
    const before = await page.innerText(".figures");
    await until(async () => (await page.innerText(".figures")) !== before, "numbers that move");
    const version = (await (await page.request.get(`${given.admin}/v1/session`)).json()).version;
    check((await made()).length === 3 && (await made())[2] === `/dashboard/stream.js sluice ${version}`, `the workers: ${await made()}`);
    await clean(page);
  },

  // What a tab costs that nobody looks at: after a minute no stream and no request; and it catches up when it is looked at again.
  async sleeping_tab() {
    const page = await open({ signIn: null });
    await page.clock.install();
    await page.reload();
    await enter(page, given.tokens.operator);
    await page.waitForSelector(".alarm");
    const look = (hidden) => page.evaluate((value) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => value });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
    const streams = async () => Number(/^sluice_admin_streams (\d+)/m.exec(await (await page.request.get(`${given.admin}/metrics`)).text())[1]);
    await until(async () => (await streams()) === 1, "the stream of a tab that is looked at");
    await until(() => page.asked.some((url) => url.endsWith("/advice_table.js")), "the modules of all screens"); // the last of them
    await look(true);
    await page.clock.fastForward(61_000);
    await until(async () => (await streams()) === 0, "the stream to end");
    const asked = page.asked.length;
    await page.clock.fastForward(3_600_000);
    await page.waitForTimeout(3000);
    same(page.asked.slice(asked), [], "requests of an hour");
    await look(false);
    await until(async () => (await streams()) === 1, "the stream again");
    const before = await page.innerText(".figures");
    await until(async () => (await page.innerText(".figures")) !== before, "numbers that move");
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
    await until(async () => (await team.innerText("main")).includes("正在限流"), "the verdict, in Chinese");
    await team.click("button:has-text('15 分钟')");
    await settled(team);
    await picture(team, "my-topic-zh-dark");
    const phone = await open({ signIn: "operator", width: 390, height: 844 });
    await phone.waitForSelector(".alarm");
    await picture(phone, "phone");
    for (const each of [team, phone]) await clean(each);
  },
};

/** In the page: words that stand on two lines. In a label every word counts; in a text Latin ones do, as Chinese may be broken anywhere there. */
function brokenWords() {
  const words = new Intl.Segmenter("zh", { granularity: "word" });
  const found = [];
  const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
    const parent = node.parentElement;
    if (!parent.checkVisibility() || parent.closest("code, .raw, .lengthy, .cut, .unseen, script, style, noscript, option")) continue;
    const label = parent.closest("button, .button, .badge, th, dt, label, nav, h1, h2");
    for (const { segment, index, isWordLike } of words.segment(node.data)) {
      if (!isWordLike || segment.length < 2 || segment.length > 16 || !(label || /^[A-Za-z]+$/.test(segment))) continue;
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + segment.length);
      if (new Set([...range.getClientRects()].map((each) => Math.round(each.top))).size > 1) found.push(`${segment} in ${node.data.slice(0, 60)}`);
    }
  }
  return found;
}

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
