import {
  boolean,
  duration,
  integer,
  line,
  matching,
  type Origin,
  setting,
  type Values,
} from "../kit/setting.ts";

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

/** What is recorded of calls. */
export const auditSettings = {
  auditReads: setting({
    env: "SVC_AUDIT_READS",
    parse: boolean,
    fallback: false,
    about: "Audit reads that were allowed, too; denials and writes always are.",
  }),
  auditExcludedActions: setting({
    env: "SVC_AUDIT_EXCLUDED_ACTIONS",
    parse: matching(/^([a-z:_-]+(,[a-z:_-]+)*|none)$/, "actions with commas between, or none", "ACTIONS"),
    fallback: "events:emit,functions:invoke,entities:append",
    about: "Actions whose allowed calls are not audited; denied ones always are.",
  }),
  auditKv: setting({
    env: "SVC_AUDIT_KV",
    parse: boolean,
    fallback: false,
    about:
      "Audit puts and deletions of keys, with their input; denied ones and changes of buckets always are.",
  }),
  auditRedactFields: setting({
    env: "SVC_AUDIT_REDACT_FIELDS",
    parse: matching(/^[A-Za-z0-9_-]+(,[A-Za-z0-9_-]+)*$/, "field names with commas between", "NAMES"),
    fallback: undefined,
    about: "Fields left out of audited inputs, besides every secret.",
  }),
  auditRetentionDays: setting({
    env: "SVC_AUDIT_RETENTION_DAYS",
    parse: integer(0, 36_500, "days"),
    fallback: 365,
    about: "Audit rows are deleted after this many days; 0 means never.",
  }),
  auditSpool: setting({
    env: "SVC_AUDIT_SPOOL",
    parse: line("FOLDER"),
    fallback: undefined,
    otherwise: "beside the database file; with PostgreSQL in the folder for temporary files",
    about: "Folder of this machine for audit rows that the database has not got yet.",
  }),
};
