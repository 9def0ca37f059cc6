import type { EventRegistry } from "../steps/events.ts";
import { dataFields } from "../wire/payload.ts";
import { type Message, payload } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { JsonSchemaText } from "../wire/standard-schema.ts";
import type { Transport } from "../wire/transport.ts";
import type {
  EventSchema,
  PushedSchemas,
  SchemaCalls,
  SchemaEnforcement,
  SchemaInfo,
} from "./schema-types.ts";

const text = (value: unknown) => String(value ?? "");
const count = (value: unknown) => Number(value ?? 0);

const readInfo = (message: Message): SchemaInfo => ({
  eventName: text(message.eventName),
  version: count(message.version),
  description: text(message.description),
  createdAt: text(message.createdAt),
});

const readSchema = (message: Message): EventSchema => ({
  ...readInfo(message),
  schema: JSON.parse(text(message.schemaJson)) as JsonSchemaText,
});

const readCheck = (message: Message): SchemaEnforcement["schemas"][number] => ({
  eventName: text(message.eventName),
  version: count(message.version),
  schemaHash: text(message.schemaHash),
  asserts: message.asserts === true,
  compileError: text(message.compileError),
  traffic: ((message.traffic ?? []) as Message[]).map((kind) => ({
    version: count(kind.version),
    schemaHash: text(kind.schemaHash),
    count: count(kind.count),
  })),
  trafficTruncated: message.trafficTruncated === true,
});

export function schemaCalls(
  transport: Transport,
  registry: Pick<EventRegistry, "schemas"> | undefined,
): SchemaCalls {
  const rpc = (method: string, message: unknown, options = safe) =>
    transport.rpc<Message>(`EventSchemaService/${method}`, message, options);

  const register: SchemaCalls["register"] = async (eventName, schema, { version = 1, description } = {}) => {
    const schemaJson = JSON.stringify(schema);
    const message = { eventName, version, schemaJson, ...(description !== undefined && { description }) };
    // The same text again changes nothing, so the call may be repeated.
    return (await rpc("RegisterSchema", message)).status as "registered" | "unchanged";
  };

  return {
    register,

    async list({ eventName, limit, offset } = {}) {
      const message = {
        ...(eventName !== undefined && { eventName }),
        ...(limit !== undefined && { limit }),
        ...(offset !== undefined && { offset }),
      };
      const answer = await rpc("ListSchemas", message);
      return {
        schemas: ((answer.schemas ?? []) as Message[]).map(readInfo),
        totalCount: count(answer.totalCount),
      };
    },

    get: async (eventName, version = 0) => readSchema(await rpc("GetSchema", { eventName, version })),

    async delete(eventName, version) {
      await rpc("DeleteSchema", { eventName, version }, once);
    },

    async testUpcast(eventName, data, { from, to = 0 }) {
      const message = { eventName, fromVersion: from, toVersion: to, ...dataFields(data) };
      const answer = await rpc("TestUpcast", message);
      const stepsApplied = ((answer.stepsApplied ?? []) as Message[]).map((step) => ({
        fromVersion: count(step.fromVersion),
        toVersion: count(step.toVersion),
        description: text(step.description),
      }));
      return { data: payload(answer, "data"), stepsApplied };
    },

    async check({ eventName, hours } = {}) {
      const answer = await rpc("CheckEnforcement", {
        ...(eventName !== undefined && { eventName }),
        ...(hours !== undefined && { trafficWindowHours: hours }),
      });
      return {
        mode: answer.mode as SchemaEnforcement["mode"],
        trafficWindowHours: count(answer.trafficWindowHours),
        totalSchemas: count(answer.totalSchemas),
        schemas: ((answer.schemas ?? []) as Message[]).map(readCheck),
      };
    },

    async push() {
      if (!registry) throw new Error("schemas.push() needs the client's option events");
      const pushed: PushedSchemas = { registered: [], unchanged: [], untold: [] };
      // A schema that its library cannot tell is found before the first is registered.
      for (const { name, version, schema } of registry.schemas()) {
        if (schema === undefined) pushed.untold.push(name);
        else pushed[await register(name, schema, { version })].push(`${name}/${version}`);
      }
      return pushed;
    },
  };
}
