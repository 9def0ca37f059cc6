import { setting } from "../kit/setting.ts";
import { boolean, integer, line, matching } from "../kit/setting-kinds.ts";

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
