import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Static, Type } from "@sinclair/typebox";
import {
  CheckEnforcementResponseSchema,
  EventSchemaService,
  type GetSchemaResponseSchema,
  type SchemaInfoSchema,
  TestUpcastResponseSchema,
} from "../../../gen/svc/v1/event_schema_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, shape } from "../../../kit/described.ts";
import { shapeOf } from "../../../kit/message-shape.ts";
import { listed, nothing, type Operation, rpc, type Thing, unary } from "../../../kit/operation.ts";
import { storedJson } from "../../../kit/payload-json.ts";
import { asRest } from "../../../kit/request.ts";
import { dataOf, messageOf, payload, timestampOf } from "../../../kit/wkt.ts";
import { schemaModes } from "./rules.ts";
import type { Enforcement, SchemaCheck, SchemaHead, SchemaRow, Schemas, Upcasted } from "./service.ts";

const toHead = ({ event_name, version, description, created_at }: SchemaHead) => ({
  ...{ eventName: event_name, version, description },
  createdAt: timestampOf(created_at),
});

const toInfo: (head: SchemaHead) => MessageInitShape<typeof SchemaInfoSchema> = toHead;

const toSchema = (row: SchemaRow): MessageInitShape<typeof GetSchemaResponseSchema> => ({
  ...toHead(row),
  schemaJson: row.schema_json,
});

const headJson = ({ event_name, version, hash, description, created_at }: SchemaHead) => ({
  ...{ event_name, version, hash, description },
  created_at: rfc3339(created_at),
});

const schemaJson = (row: SchemaRow) => ({ ...headJson(row), schema: storedJson(row.schema_json) });

const toUpcasted = ({ data, steps }: Upcasted): MessageInitShape<typeof TestUpcastResponseSchema> => ({
  ...payload("data", "dataValue", JSON.stringify(data)),
  stepsApplied: steps,
});

const upcastedJson = ({ data, steps }: Upcasted) => ({
  success: true,
  data,
  steps_applied: steps.map(({ fromVersion, toVersion, description }) => ({
    ...{ from_version: fromVersion, to_version: toVersion, description },
  })),
});

const enforcementJson = ({ mode, schemas, trafficWindowHours, totalCount }: Enforcement) => ({
  mode,
  traffic_window_hours: trafficWindowHours,
  total_schemas: totalCount,
  schemas: schemas.map((check) => ({
    ...{ event_name: check.eventName, version: check.version, schema_hash: check.schemaHash },
    ...{ asserts: check.asserts, compile_error: check.compileError },
    traffic: check.traffic.map(({ version, schemaHash, count }) => ({
      ...{ version, schema_hash: schemaHash, count },
    })),
    traffic_truncated: check.trafficTruncated,
  })),
});

const toEnforcement = (found: Enforcement) =>
  messageOf(CheckEnforcementResponseSchema)(enforcementJson(found));

const text = Type.String();
const whole = Type.Integer();
const instant = Type.String({ format: "date-time" });
const eventName = Type.String({ minLength: 1, maxLength: 1_000 });

const head = {
  event_name: text,
  version: described(whole, "Version of the event's schema, from 1."),
  hash: described(text, "SHA-256 of the schema's text, in hex."),
  description: described(text, "What the schema is for."),
  created_at: instant,
};
const SchemaHeadShape = Type.Object(head);
export const SchemaShape = Type.Object({
  ...head,
  schema: Type.Unknown({ description: "The JSON Schema." }),
});

const Register = Type.Object({
  event_name: eventName,
  version: Type.Optional(described(whole, "Version of the event's schema; 1 when left out.")),
  schema_json: shape.text("A JSON Schema, as text."),
  description: Type.Optional(described(text, "What the schema is for, at most 2,000 bytes.")),
});

/** The names by which a deny policy may mean an event, as for the emit itself. */
const namesOf = (name: string) => [name, `events:${name}`];
const aboutName = (name: string): (string | Thing)[] => namesOf(name).map((id) => ({ type: "event", id }));
const about = ({ event_name: name }: { event_name: string }) => aboutName(name);

const read = { action: "schemas:read", reads: true } as const;

export const schemasOperations = (schemas: Schemas): Operation[] => [
  ...registryOperations(schemas),
  ...enforcementOperations(schemas),
];

const byVersion = Type.Object({
  event_name: eventName,
  version: Type.Optional(described(whole, "Version of the event's schema; the latest when left out.")),
});

export const UpcastShape = shapeOf(TestUpcastResponseSchema, {
  omit: "data_value",
  own: {
    success: shape.flag("Always true: what cannot be brought up is an error."),
    data: Type.Unknown({ description: "The payload of `toVersion`." }),
  },
});

const registryOperations = (schemas: Schemas): Operation[] => [
  unary({
    name: "schemas.register",
    action: "schemas:manage",
    summary: "Registers a JSON Schema for one version of an event; from then on its name is governed.",
    input: Register,
    about,
    output: SchemaShape,
    rest: {
      route: "POST /api/v1/events/schemas",
      status: 201,
      also: [200],
      encode: ({ schema, created }: RegisteredSchema) => ({
        status: created ? 201 : 200,
        body: schemaJson(schema),
      }),
    },
    rpc: rpc(EventSchemaService.method.registerSchema, asRest, ({ created }: RegisteredSchema) => ({
      status: created ? "registered" : "unchanged",
    })),
    handle: (input, call) =>
      schemas.register(call.environmentId, {
        eventName: input.event_name,
        version: input.version ?? 0,
        schemaJson: input.schema_json,
        description: input.description ?? "",
      }),
  }),
  unary({
    name: "schemas.list",
    ...read,
    summary: "Schemas of events, by name and version.",
    input: Type.Object({
      event_name: Type.Optional(text),
      limit: Type.Optional(whole),
      offset: Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000_000 })),
    }),
    output: Type.Object({
      schemas: Type.Array(SchemaHeadShape, { description: "Schemas by name and version." }),
      total_count: whole,
    }),
    lists: listed(({ event_name }: SchemaHead) => namesOf(event_name), { under: "schemas", type: "event" }),
    rest: {
      route: "GET /api/v1/events/schemas",
      json: ({ schemas: list, totalCount }: Page) => ({
        schemas: list.map(headJson),
        total_count: totalCount,
      }),
    },
    rpc: rpc(EventSchemaService.method.listSchemas, asRest, ({ schemas: list, totalCount }: Page) => ({
      schemas: list.map(toInfo),
      totalCount,
    })),
    handle: ({ event_name: name, limit, offset = 0 }, call) =>
      schemas.list(call.environmentId, { eventName: name || undefined, limit, offset }),
  }),
  unary({
    name: "schemas.get",
    ...read,
    summary: "The schema of one version of an event; of the latest without one.",
    input: byVersion,
    about,
    output: SchemaShape,
    rest: [
      "GET /api/v1/events/schemas/{event_name}",
      "GET /api/v1/events/schemas/{event_name}/{version}",
    ].map((route) => ({ route, json: schemaJson })),
    rpc: rpc(EventSchemaService.method.getSchema, asRest, toSchema),
    handle: ({ event_name: name, version = 0 }, call) => schemas.get(call.environmentId, name, version),
  }),
  unary({
    name: "schemas.delete",
    action: "schemas:manage",
    summary: "Deletes the schema of one version; without any the name is governed no more.",
    input: Type.Object({
      event_name: eventName,
      version: described(whole, "Version of the event's schema."),
    }),
    about,
    rest: "DELETE /api/v1/events/schemas/{event_name}/{version}",
    rpc: rpc(EventSchemaService.method.deleteSchema, asRest, nothing),
    handle: ({ event_name: name, version }, call) => schemas.remove(call.environmentId, name, version),
  }),
  unary({
    name: "schemas.testUpcast",
    ...read,
    summary:
      "Brings data up from one version of an event to another, by what its schemas say; stores nothing.",
    input: Type.Object({
      eventName,
      fromVersion: described(whole, "Version that the data has."),
      toVersion: Type.Optional(described(whole, "Version that is wanted; the latest when left out.")),
      data: Type.Optional(Type.Unknown({ description: "A payload of `fromVersion`." })),
    }),
    about: ({ eventName: name }: { eventName: string }) => aboutName(name),
    output: UpcastShape,
    rest: { route: "POST /api/v1/events/upcast", json: upcastedJson },
    rpc: rpc(
      EventSchemaService.method.testUpcast,
      (m) => ({
        ...{ eventName: m.eventName, fromVersion: m.fromVersion, toVersion: m.toVersion },
        ...dataOf(m),
      }),
      toUpcasted,
    ),
    handle: ({ eventName: name, fromVersion, toVersion = 0, data = {} }, call) =>
      schemas.testUpcast(call.environmentId, { eventName: name, fromVersion, toVersion, data }),
  }),
];

type RegisteredSchema = Awaited<ReturnType<Schemas["register"]>>;
type Page = Awaited<ReturnType<Schemas["list"]>>;

const Mode = Type.Union(schemaModes.map((mode) => Type.Literal(mode)));
const ModeShape = Type.Object({
  mode: described(Mode, "`enforce` (refuses), `warn` (writes and marks) or `off`."),
});
const encodeMode = (mode: string) => ({ status: 200, body: { mode } });

export const CheckShape = shapeOf(CheckEnforcementResponseSchema, { own: { mode: Mode } });

const Check = Type.Object({
  event_name: Type.Optional(text),
  traffic_window_hours: Type.Optional(
    described(whole, "Events of so many hours are counted: 24 when left out, at most 168."),
  ),
});

const enforcementOperations = (schemas: Schemas): Operation[] => [
  unary({
    name: "schemas.check",
    ...read,
    summary: "How schemas are enforced, and how many recent events they would refuse now.",
    input: Check,
    about: ({ event_name: name }: Static<typeof Check>) => (name ? aboutName(name) : ["*"]),
    lists: listed(({ eventName: name }: SchemaCheck) => namesOf(name), { under: "schemas", type: "event" }),
    output: CheckShape,
    rest: { route: "GET /api/v1/events/enforcement", json: enforcementJson },
    rpc: rpc(EventSchemaService.method.checkEnforcement, asRest, toEnforcement),
    handle: ({ event_name: name, traffic_window_hours: hours = 0 }, call) =>
      schemas.check(call.environmentId, { eventName: name || undefined, trafficWindowHours: hours }),
  }),
  unary({
    name: "schemas.setMode",
    // As every change of an environment.
    action: "secrets:manage",
    summary:
      "What becomes of events that break their schema: `off`, `warn` (written, and marked) or `enforce`.",
    input: ModeShape,
    output: ModeShape,
    rest: { route: "PUT /api/v1/events/enforcement", encode: encodeMode },
    handle: ({ mode }, call) => schemas.setMode(call.environmentId, mode),
  }),
];
