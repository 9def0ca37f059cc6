import type { Group } from "../group.ts";
import { rebuildBar } from "../progress.ts";

const columns = ["name", "mode", "status", "version", "lastEventSeq", "updatedAt", "errorMessage"];

/** Read models that are folded from events. */
export const projectionGroups: readonly Group[] = [
  {
    name: "projection",
    about: "Read models that are folded from events.",
    plain: [
      { name: "list", operation: "projections.list", shows: { columns, items: "projections" } },
      { name: "get", operation: "projections.get", takes: ["name"], shows: { items: "" } },
      { name: "status", operation: "projections.status", takes: ["name"] },
      { name: "partitions", operation: "projections.partitions", takes: ["name"] },
      {
        name: "create",
        operation: "projections.createSql",
        takes: ["name"],
        flags: { tableSql: "sql", eventHandlers: "event-handler", events: "event" },
        files: { tableSql: "sql-file" },
        about: "Registers a table that the server folds events into by SQL.",
      },
      {
        name: "query",
        operation: "projections.querySql",
        takes: ["name"],
        shows: { items: "rows" },
      },
      {
        name: "history",
        operation: "projections.history",
        takes: ["name"],
        shows: { columns: ["entityVersion", "changeType", "actorId", "recordedAt"], items: "entries" },
      },
      { name: "revision", operation: "projections.revision", takes: ["name"], shows: { items: "" } },
      { name: "pause", operation: "projections.pause", takes: ["name"] },
      { name: "resume", operation: "projections.resume", takes: ["name"] },
      {
        name: "delete",
        operation: "projections.delete",
        takes: ["name"],
        confirms: "Delete projection {name} and its states?",
      },
      {
        name: "watch",
        operation: "projections.waitStream",
        takes: ["name"],
        about: "Follows how far the projection has come, until it has caught up.",
      },
      { name: "wait", operation: "projections.wait", takes: ["name"] },
      { name: "wait-for-event", operation: "projections.waitForEvent", takes: ["eventId", "projection"] },
      { name: "wait-batch", operation: "projections.waitBatch", shows: { items: "" } },
    ],
    groups: [
      {
        name: "rebuild",
        about: "Folds a projection anew.",
        plain: [
          {
            name: "start",
            operation: "projections.rebuild",
            isDefault: true,
            takes: ["name"],
            flags: { fromEventId: "from", toEventId: "to" },
            shows: { items: "" },
            confirms: "Rebuild projection {name}?",
          },
          {
            name: "status",
            operation: "projections.rebuildJob",
            takes: ["name"],
            shows: { items: "", bar: rebuildBar },
          },
          { name: "cancel", operation: "projections.cancelRebuild", takes: ["name"] },
        ],
      },
    ],
  },
];
