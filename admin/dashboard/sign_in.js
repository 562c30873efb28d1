// Signing in: the token is sent once; the browser keeps a cookie that no script can read.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { field } from "./parts.js";
import { redraw, set, state } from "./store.js";
import { t } from "./text.js";

const form = { error: "", busy: false };

async function submit(event, entered) {
  event.preventDefault();
  const input = document.getElementById("token");
  const token = input.value.trim();
  form.error = token ? "" : t("token_needed");
  form.busy = Boolean(token);
  redraw();
  if (!token) return input.focus();
  try {
    const found = await ask("POST", "/v1/session", { body: { token } });
    input.value = "";
    form.busy = false;
    set({ session: found.body, notice: null });
    entered();
  } catch (error) {
    form.busy = false;
    form.error =
      error.status === 401 ? t("token_wrong") : error.status === 429 ? t("too_many_attempts", { seconds: error.retryAfter || "?" }) : error.status === 0 ? t("unreachable") : error.message;
    redraw();
    input.focus();
    input.select();
  }
}

export function signIn(entered) {
  const input = (props) => h("input", { name: "token", type: "password", autocomplete: "off", spellcheck: "false", autofocus: true, required: true, mount: (element) => queueMicrotask(() => element.focus()), ...props });
  return h(
    "main",
    { id: "main", class: "sign-in", tabindex: "-1" },
    h("h1", { id: "title", tabindex: "-1" }, t("sign_in_title")),
    state.notice && h("p", { class: "notice", role: "status" }, t(state.notice)),
    h(
      "form",
      { onsubmit: (event) => submit(event, entered), novalidate: true },
      field("token", t("token"), input, { hint: t("token_hint"), error: form.error }),
      h("button", { type: "submit", class: "main", disabled: form.busy }, t("sign_in")),
    ),
    h("details", null, h("summary", null, t("where_token")), h("p", null, t("where_token_1")), h("pre", null, h("code", null, "cat state/admin.token")), h("p", null, t("where_token_2")), h("pre", null, h("code", null, "sluice token new ana --role operator --file ana.token"))),
  );
}
