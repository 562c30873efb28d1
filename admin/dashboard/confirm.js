// "Do it?" with a preview and a reason: for what ends, closes or restores something.

import { h } from "./dom.js";
import { button, buttons, dialog, field, given, input, problem } from "./parts.js";
import { redraw, set } from "./store.js";
import { t } from "./text.js";

/** A question of a screen. ask({title, text, action, reason, run(reason)}); view() draws it while it is open. */
export function confirmation() {
  let open = null;
  let from = null;
  function close() {
    open = null;
    redraw();
    const back = from;
    requestAnimationFrame(() => back?.isConnected && back.focus());
  }
  async function run() {
    const [mine, at] = [open, location.pathname]; // it may be closed, another one opened, or the screen left before the answer comes
    mine.busy = true;
    mine.error = null;
    redraw();
    try {
      await mine.run(mine.reason.trim());
      if (open === mine) close();
    } catch (error) {
      mine.error = error;
      mine.busy = false;
      if (open === mine && location.pathname === at) redraw();
      else set({ told: { text: t("question_failed", { what: mine.title, error: error.status ? error.message : t("unreachable") }), bad: true } });
    }
  }
  return {
    ask(what) {
      from = document.activeElement;
      open = { reason: "", busy: false, error: null, ...what };
      redraw();
    },
    view: () =>
      open &&
      dialog(open.title, close, "", h(
        "form",
        { onsubmit: (event) => {
          event.preventDefault();
          run();
        }, novalidate: true },
        open.text && h("p", null, open.text),
        open.more?.(),
        open.fields?.(open.error),
        field("why", t("reason"), input(open, "reason", { maxlength: 500 }), { hint: t("reason_hint"), error: open.error?.errors?.get("/reason") }),
        problem(open.error),
        buttons(button(open.action, null, { type: "submit", class: open.danger ? "danger" : "main", disabled: open.busy }), button(t("cancel"), close)),
      )),
  };
}

/** A change before and after, member by member. */
export function diff(before, after) {
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const names = [...new Set([...Object.keys(before || {}), ...Object.keys(after || {})])].filter((name) => !["by", "at"].includes(name));
  const changed = names.filter((name) => text(before?.[name]) !== text(after?.[name]));
  return h("div", { class: "diff" }, changed.map((name) => [
    before && name in before && h("del", { key: `- ${name}` }, given(`${name}: ${text(before[name])}`)),
    after && name in after && h("ins", { key: `+ ${name}` }, given(`${name}: ${text(after[name])}`)),
  ]));
}
