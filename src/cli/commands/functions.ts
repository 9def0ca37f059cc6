import { askAndShow, type PlainCommand } from "../command.ts";
import type { Group } from "../group.ts";
import { usage } from "../io.ts";
import { operationNamed } from "../operations.ts";

const columns = ["id", "status", "version", "startedBy", "executionMode", "updatedAt"];

interface TriggerShown {
  event?: string;
  cron?: string;
  expression?: string;
}

const startOf = ({ event, cron, expression }: TriggerShown): string =>
  `${event || cron || ""}${expression ? " (if)" : ""}`;

/** A key as its list shows it, as the path of an operation takes it. */
const keyed = (operation: string): NonNullable<PlainCommand["does"]> => {
  return (asking, { key = "", ...input }) => {
    if (key === "") throw usage("--key is needed, as the list shows it");
    return askAndShow(asking, operationNamed(operation), {
      ...{ ...input, key: Buffer.from(String(key)).toString("base64url") },
    });
  };
};

export const listDeployments: PlainCommand = {
  name: "list",
  operation: "deployments.list",
  shows: { columns: ["name", "workers", "since", "runs", "held", "safe_to_stop"], items: "deployments" },
};

/** Functions, and what bounds them. */
export const functionGroups: readonly Group[] = [
  {
    name: "function",
    about: "Functions: versions, pause, rollback.",
    plain: [
      {
        name: "list",
        operation: "functions.list",
        shows: {
          ...{ columns, items: "functions" },
          row: (one) => ({ ...one, startedBy: ((one.triggers ?? []) as TriggerShown[]).map(startOf) }),
        },
      },
      { name: "get", operation: "functions.get", takes: ["id"], shows: { items: "" } },
      { name: "register", operation: "functions.register", takes: ["id"], shows: { items: "" } },
      {
        name: "history",
        operation: "functions.history",
        takes: ["functionId"],
        shows: {
          columns: ["entityVersion", "changeType", "changeReason", "actorId", "recordedAt"],
          items: "entries",
        },
      },
      { name: "at", operation: "functions.at", takes: ["functionId"], shows: { items: "" } },
      {
        name: "rollback",
        operation: "functions.rollback",
        takes: ["functionId"],
        flags: { version: "to" },
        shows: { items: "" },
        confirms: "Roll {functionId} back to version {version}?",
      },
      {
        name: "pause",
        operation: "functions.setStatus",
        takes: ["id"],
        sets: { status: "FUNCTION_STATUS_PAUSED" },
        shows: { items: "" },
        about: "Starts no runs of the function until it is activated.",
      },
      {
        name: "activate",
        operation: "functions.setStatus",
        takes: ["id"],
        sets: { status: "FUNCTION_STATUS_ACTIVE" },
        shows: { items: "" },
        about: "Starts runs of the function again.",
      },
      {
        name: "archive",
        operation: "functions.setStatus",
        takes: ["id"],
        sets: { status: "FUNCTION_STATUS_ARCHIVED" },
        shows: { items: "" },
        about: "Takes the function out of use; its runs stay.",
        confirms: "Archive {id}?",
      },
      {
        name: "delete",
        operation: "functions.delete",
        takes: ["id"],
        confirms: "Delete function {id}?",
      },
    ],
  },
  {
    name: "worker",
    about: "Workers that are connected.",
    plain: [
      {
        name: "list",
        operation: "workers.list",
        shows: {
          columns: ["id", "function_ids", "deployment", "active_jobs", "max_concurrent", "last_heartbeat"],
        },
      },
    ],
  },
  {
    name: "capacity",
    about: "What workers have room for, and what waits.",
    plain: [
      {
        name: "stats",
        operation: "capacity.stats",
        flags: { env: "environment" },
      },
      ...(["lanes", "queue", "leases", "buckets", "sessions", "credits"] as const).map((name) => ({
        name,
        operation: `capacity.${name}`,
        flags: { env: "environment" },
      })),
    ],
  },
  {
    name: "debounce",
    about: "Repeated events that wait to start one run.",
    plain: [
      {
        name: "list",
        operation: "debounce.list",
        shows: {
          columns: ["function_id", "debounce_key", "key_kind", "event_id", "fires_at", "environment_id"],
          items: "entries",
        },
      },
      {
        name: "cancel",
        operation: "debounce.cancel",
        flags: { envID: "env-id", fnID: "function", key: "key" },
        confirms: "Cancel what waits? Its events start no run.",
        about: "Cancels what waits under a --key, as debounce list shows it: its event starts no run.",
        abouts: { key: "The debounce_key of the list; entries of all kinds that have it go." },
        does: keyed("debounce.cancel"),
      },
    ],
  },
  {
    name: "batch",
    about: "Events that wait to start one run together.",
    plain: [
      {
        name: "list",
        operation: "batches.list",
        flags: { function_id: "function" },
        shows: { items: "batches" },
      },
    ],
  },
  {
    name: "schedule",
    about: "Cron triggers of functions: their next slots, the last run, and those that were missed.",
    plain: [
      {
        ...{ name: "list", operation: "schedules.list", flags: { function_id: "function" } },
        shows: {
          columns: [
            ...["function_id", "expression", "event", "next_at"],
            ...["last_at", "last_status", "last_run_id", "fired", "missed"],
          ],
        },
      },
    ],
  },
  {
    name: "circuit-breaker",
    about: "Circuit breakers of the endpoints of push functions.",
    aliases: ["breaker"],
    plain: [
      { name: "list", operation: "breakers.list" },
      {
        ...{ name: "reset", operation: "breakers.reset", takes: ["key"], does: keyed("breakers.reset") },
        about: "Closes a breaker, so that its endpoint is called again.",
        abouts: { key: "The key of the list: 'FUNCTION|URL'." },
      },
    ],
  },
];
