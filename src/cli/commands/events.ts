import type { Command } from "commander";
import { addCommon, askAndShow, askingOf, type CommonFlags } from "../command.ts";
import type { Group } from "../group.ts";
import type { Io } from "../io.ts";
import { operationNamed } from "../operations.ts";

const eventColumns = ["id", "name", "timestamp", "data"];

const pauses = [
  { name: "pause", status: "PAUSED", about: "Holds the deliveries of a group; it keeps its place." },
  { name: "resume", status: "ACTIVE", about: "Goes on with the deliveries of a paused group." },
] as const;

/** An update takes a whole group: these name it, and change its status alone. */
function addPauses(groups: Command, io: Io): void {
  const operation = operationNamed("groups.update");
  for (const { name, status, about } of pauses) {
    const command = groups
      .command(`${name} <name>`)
      .summary(about)
      .description(`${about}\n\nOperation ${operation.name}; needs ${operation.action}.`)
      .option("--namespace <text>", "The namespace of the group.");
    addCommon(command).action(async (group: string) => {
      const { namespace, ...flags } = command.optsWithGlobals() as CommonFlags & { namespace?: string };
      const changed = { name: group, namespace, status: `CONSUMER_GROUP_STATUS_${status}` };
      const input = { group: changed, updateMask: "status" };
      await askAndShow(askingOf(io, flags), operation, input, { items: "" });
    });
  }
}

/** The log of events, streams of entities, topics and groups. */
export const eventGroups: readonly Group[] = [
  {
    name: "event",
    about: "Events of the log, and their schemas.",
    plain: [
      { name: "list", operation: "events.list", shows: { columns: eventColumns, items: "events" } },
      { name: "get", operation: "events.get", takes: ["id"], shows: { items: "" } },
      { name: "names", operation: "events.names" },
      { name: "delayed", operation: "events.delayed" },
      { name: "cancel-delayed", operation: "events.cancelDelayed", takes: ["id"] },
      {
        name: "redact",
        operation: "events.redact",
        takes: ["eventId"],
        confirms: "Redact {eventId}? Its data is gone for good.",
      },
      {
        name: "upcast",
        operation: "schemas.testUpcast",
        takes: ["eventName"],
        flags: { fromVersion: "from", toVersion: "to" },
        shows: { items: "" },
      },
      {
        name: "cause",
        operation: "causality.get",
        takes: ["kind", "id"],
        shows: { columns: ["depth", "kind", "id", "name", "status", "at"], items: "things" },
      },
    ],
    groups: [
      {
        name: "schema",
        about: "Schemas of events.",
        plain: [
          { name: "list", operation: "schemas.list", takes: ["eventName?"], shows: { items: "schemas" } },
          {
            name: "register",
            operation: "schemas.register",
            takes: ["eventName"],
            flags: { schemaJson: "schema" },
            files: { schemaJson: "file" },
          },
          { name: "get", operation: "schemas.get", takes: ["eventName"] },
          {
            name: "check",
            operation: "schemas.check",
            flags: { eventName: "event" },
            shows: { items: "schemas" },
          },
          { name: "set-mode", operation: "schemas.setMode", takes: ["mode"] },
          {
            name: "delete",
            operation: "schemas.delete",
            takes: ["eventName", "version"],
            confirms: "Delete the schema of {eventName}, version {version}?",
          },
        ],
      },
    ],
  },
  {
    name: "stream",
    about: "Streams of entities: events with versions.",
    plain: [
      { name: "list", operation: "streams.list", flags: { entityType: "type" }, shows: { items: "streams" } },
      { name: "info", operation: "streams.get", takes: ["entityId"] },
      {
        name: "read",
        operation: "streams.read",
        takes: ["entityId"],
        shows: { columns: ["entityVersion", "name", "timestamp", "data"], items: "events" },
      },
      {
        name: "history",
        operation: "streams.history",
        takes: ["entityId"],
        shows: { columns: ["entityVersion", "eventName", "timestamp", "eventData"], items: "entries" },
      },
      {
        name: "append",
        operation: "streams.append",
        takes: ["entityId"],
        flags: { eventName: "event", entityType: "type" },
      },
      { name: "snapshot", operation: "streams.getSnapshot", takes: ["entityId"] },
      {
        name: "store-snapshot",
        operation: "streams.createSnapshot",
        takes: ["entityId"],
        flags: { entityType: "type", entityVersion: "at-version" },
        files: { state: "state-file" },
      },
      {
        name: "redact",
        operation: "streams.redactEvent",
        takes: ["entityId", "eventId"],
        confirms: "Redact {eventId}? Its data is gone for good.",
      },
      {
        name: "delete",
        operation: "streams.delete",
        takes: ["entityId"],
        confirms: "Delete stream {entityId}?",
      },
    ],
  },
  {
    name: "topic",
    about: "Messages that start nothing.",
    plain: [
      { name: "list", operation: "topics.list", shows: { items: "topics" } },
      { name: "stats", operation: "topics.stats", takes: ["topic"] },
      { name: "publish", operation: "topics.publish", takes: ["topic"] },
    ],
  },
  {
    name: "group",
    about: "Consumer groups: each delivery goes to one member.",
    plain: [
      {
        name: "list",
        operation: "groups.list",
        shows: {
          columns: ["name", "pattern", "status", "memberCount", "position", "inflightCount"],
          items: "groups",
        },
      },
      { name: "get", operation: "groups.get", takes: ["name"], shows: { items: "" } },
      { name: "create", operation: "groups.create", takes: ["name", "pattern"], shows: { items: "" } },
      { name: "update", operation: "groups.update", shows: { items: "" } },
      {
        name: "delete",
        operation: "groups.delete",
        takes: ["name"],
        confirms: "Delete group {name} and its place?",
      },
    ],
    more: addPauses,
  },
  {
    name: "outbox",
    about: "Messages that the bus did not take.",
    groups: [
      {
        name: "dlq",
        about: "Dead letters of the outbox.",
        plain: [
          { name: "list", operation: "outbox.deadLetters", sets: { env: undefined } },
          { name: "requeue", operation: "outbox.requeue", takes: ["eventID"] },
          {
            name: "discard",
            operation: "outbox.discard",
            takes: ["eventID"],
            confirms: "Discard {eventID}? It is sent no more.",
          },
        ],
      },
    ],
  },
  {
    name: "flow",
    about: "Which functions, events and topics lead to which.",
    plain: (["emit", "invoke", "stream", "topic", "wait"] as const).map((name) => ({
      name,
      operation: `flow.${name}Edges`,
    })),
  },
];
