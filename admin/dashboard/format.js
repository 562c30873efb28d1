// Numbers, times and names as people read them, in the language chosen.

import { isSum, partOf } from "./router.js";
import { state } from "./store.js";
import { language, t } from "./text.js";

const NONE = "–";
const NEVER_MS = 1e12; // 31 years; a wait that has no end is told as 146
const formats = new Map(); // language -> how it writes whole numbers: made once, which takes longer than to write ten thousand of them

function whole(value) {
  if (!formats.has(language())) formats.set(language(), new Intl.NumberFormat(language()));
  return formats.get(language()).format(value);
}

/** 1.5k, 92, 0.3: at most three digits. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 999_500_000) return `${short(value / 1e9)}G`;
  if (size >= 999_500) return `${short(value / 1e6)}M`;
  if (size >= 9_995) return `${short(value / 1e3)}k`;
  if (size >= 100) return whole(Math.round(value));
  return short(value);
}

function short(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 99.5) return String(Math.round(value));
  return String(Number(value.toFixed(size >= 9.95 ? 0 : 1))) === "0" ? "<0.1" : String(Number(value.toFixed(size >= 9.95 ? 0 : 1)));
}

export const count = (value) => (value === null || value === undefined ? NONE : whole(value));
export const rate = (value) => (value === null || value === undefined ? NONE : `${number(value)}/s`);
export const percent = (share) => (share === null || share === undefined ? NONE : `${share > 0 && share < 0.005 ? "<1" : share >= 0.995 && share < 1 ? ">99" : Math.round(share * 100)} %`);

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${value >= 100 || at === 0 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value <= 0) return "0";
  if (value >= NEVER_MS) return t("never_passes");
  if (value >= 10_000) return duration(value / 1000);
  return value >= 10 ? `${Math.round(value)} ms` : `${Number(value.toFixed(1))} ms`;
}

/** 4 min, 2 h 10 min, 3 d. */
export function duration(seconds) {
  seconds = Math.max(0, Math.round(seconds));
  if (seconds < 60) return `${seconds} ${t("unit_s")}`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10 && seconds % 60) return `${minutes} ${t("unit_min")} ${seconds % 60} ${t("unit_s")}`;
  if (minutes < 60) return `${minutes} ${t("unit_min")}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} ${t("unit_h")} ${minutes % 60} ${t("unit_min")}` : `${hours} ${t("unit_h")}`;
  const days = Math.floor(hours / 24);
  return days < 10 && hours % 24 ? `${days} ${t("unit_d")} ${hours % 24} ${t("unit_h")}` : `${days} ${t("unit_d")}`;
}

const two = (value) => String(value).padStart(2, "0");

/** 16:24:41 of today, else 11-22 16:24. */
export function moment(text, seconds = false) {
  if (!text) return NONE;
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ""}`;
  const now = new Date();
  if (at.toDateString() === now.toDateString()) return clock;
  const day = `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return at.getFullYear() === now.getFullYear() ? `${day} ${clock}` : `${at.getFullYear()}-${day} ${clock}`;
}

const sinceThen = (text) => (Date.now() + state.skew - new Date(text).getTime()) / 1000; // by the gateway's clock
export const ago = (text) => (text ? duration(sinceThen(text)) : NONE);
export const until = (text) => duration(-sinceThen(text));

/** A limit's text with numbers that were computed, such as a quota's, in three digits: 106255B/s is 104 KiB/s. Whole numbers are told in full. */
export const readable = (text) => text?.replace(/\b(\d+\.\d+|\d{4,})(B?)\/s/g, (_, value, unit) => `${(unit ? bytes : value.includes(".") ? number : whole)(Number(value))}/s`);

/** A limit as people write it: 500/s, 10MiB/s, 20 at a time; 500/s (shadow). */
export function limitText(limit) {
  if (!limit) return NONE;
  const parts = [readable(limit.messages), readable(limit.bytes)];
  if (limit.concurrent) parts.push(t("at_a_time", { n: limit.concurrent }));
  const text = parts.filter(Boolean).join(" · ") || t("unlimited");
  return limit.mode && limit.mode !== "enforce" ? `${text} (${t(`mode_${limit.mode}`)})` : text;
}

/** That of a level. */
export const levelText = (level) => limitText(level && { ...level.limit, mode: level.mode });

const decode = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/** A topic's name, short: without the default virtual host, decoded for reading. Its full text stands in the title. */
export function topicName(item) {
  if (isSum(item)) return t("sum_of_topics");
  if (item.protocol !== "amqp") return item.topic;
  const parts = String(item.topic).split("/").map((part) => partOf(decode(part)));
  if (parts[0] === "/") parts.shift();
  return parts.join(" / ");
}

/** How a client calls itself, or its address. */
export const host = (client) => String(client || "").replace(/:\d+$/, "");
