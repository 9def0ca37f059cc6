import type { Origin, Values } from "../kit/setting.ts";
import { setting } from "../kit/setting.ts";
import { duration, integer } from "../kit/setting-kinds.ts";

/** Shorter would end what its reader has not seen yet. */
const keptMsMin = 10_000;
const kept = duration(keptMsMin, 36_500);
const hourMs = 60 * 60 * 1000;
const dayMs = 24 * hourMs;

/** How long events, messages and runs are kept. */
export const retentionSettings = {
  eventRetentionDays: setting({
    env: "SVC_EVENT_RETENTION_DAYS",
    parse: integer(0, 36_500, "days"),
    fallback: 0,
    about: "Events are deleted after this many days; 0 means never.",
  }),
  topicRetentionHours: setting({
    env: "SVC_TOPIC_RETENTION_HOURS",
    parse: integer(0, 876_000, "hours"),
    fallback: 72,
    about: "Messages of developer topics are deleted after this many hours; 0 means never.",
  }),
  runRetentionDays: setting({
    env: "SVC_RUN_RETENTION_DAYS",
    parse: integer(0, 36_500, "days"),
    fallback: 90,
    about:
      "A run is deleted this many days after its end, unless its function sets its own retention; 0 means never.",
  }),
  eventRetention: setting({
    env: "SVC_EVENT_RETENTION",
    parse: kept,
    fallback: undefined,
    about: "The same as SVC_EVENT_RETENTION_DAYS for less than a day, such as 4m.",
  }),
  topicRetention: setting({
    env: "SVC_TOPIC_RETENTION",
    parse: kept,
    fallback: undefined,
    about: "The same as SVC_TOPIC_RETENTION_HOURS for less than an hour, such as 4m.",
  }),
  runRetention: setting({
    env: "SVC_RUN_RETENTION",
    parse: kept,
    fallback: undefined,
    about: "The same as SVC_RUN_RETENTION_DAYS for less than a day, such as 4m.",
  }),
};

type RetentionValues = Values<typeof retentionSettings>;

/** How long each is kept, in milliseconds; 0 has no end. */
export const keptMs = (config: RetentionValues) => ({
  events: config.eventRetention ?? config.eventRetentionDays * dayMs,
  topics: config.topicRetention ?? config.topicRetentionHours * hourMs,
  runs: config.runRetention ?? config.runRetentionDays * dayMs,
});

const expireMsMin = 1_000;
const expireMsMax = 10 * 60_000;

/** How often expired rows are deleted: a quarter of a short time, so that a small disk holds little more. */
export const expireEveryMs = (kept: number): number =>
  kept === 0 ? expireMsMax : Math.min(expireMsMax, Math.max(expireMsMin, Math.floor(kept / 4)));

const twins = [
  ["eventRetention", "eventRetentionDays"],
  ["topicRetention", "topicRetentionHours"],
  ["runRetention", "runRetentionDays"],
] as const;

/** One fact has two settings; of an operator who gives both, one is not meant. */
export const retentionConflicts = (origins: Readonly<Record<keyof RetentionValues, Origin>>): string[] =>
  twins
    .filter((names) => names.every((name) => origins[name] !== "default"))
    .map((names) => `${names.map((name) => retentionSettings[name].env).join(" and ")}: choose one`);
