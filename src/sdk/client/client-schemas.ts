import type { EventRegistry } from "../steps/events.ts";
import type { JsonSchemaText } from "../wire/json-schema.ts";
import { dataFields } from "../wire/payload.ts";
import { all, count, fieldsOf, type Message, payload, text } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type {
  EventSchema,
  PushedSchemas,
  SchemaCalls,
  SchemaEnforcement,
  SchemaInfo,
} from "./entity-types.ts";

const readInfo: (message: Message) => SchemaInfo = fieldsOf<SchemaInfo>()({
  ...{ texts: ["eventName", "description", "createdAt"], counts: ["version"] },
});

const readSchema = (message: Message): EventSchema => ({
  ...readInfo(message),
  schema: JSON.parse(text(message.schemaJson)) as JsonSchemaText,
});

type CheckedSchema = SchemaEnforcement["schemas"][number];
const checkFields = fieldsOf<CheckedSchema>()({
  texts: ["eventName", "schemaHash", "compileError"],
  ...{ counts: ["version"], flags: ["asserts", "trafficTruncated"] },
});
const readTraffic = fieldsOf<CheckedSchema["traffic"][number]>()({
  ...{ texts: ["schemaHash"], counts: ["version", "count"] },
});
const readCheck = (message: Message): CheckedSchema => ({
  ...checkFields(message),
  traffic: all(message.traffic, readTraffic),
});

export function schemaCalls(
  transport: Transport,
  registry: Pick<EventRegistry, "schemas"> | undefined,
): SchemaCalls {
  const rpc = (method: string, message: unknown, options = safe) =>
    transport.rpc<Message>(`EventSchemaService/${method}`, message, options);

  const register: SchemaCalls["register"] = async (eventName, schema, { version = 1, description } = {}) => {
    const schemaJson = JSON.stringify(schema);
    const message = { eventName, version, schemaJson, description };
    // The same text again changes nothing, so the call may be repeated.
    return (await rpc("RegisterSchema", message)).status as "registered" | "unchanged";
  };

  return {
    register,

    async list({ eventName, limit, offset } = {}) {
      const answer = await rpc("ListSchemas", { eventName, limit, offset });
      return {
        schemas: all(answer.schemas, readInfo),
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
      const stepsApplied = all(answer.stepsApplied, (step) => ({
        fromVersion: count(step.fromVersion),
        toVersion: count(step.toVersion),
        description: text(step.description),
      }));
      return { data: payload(answer, "data"), stepsApplied };
    },

    async check({ eventName, hours } = {}) {
      const answer = await rpc("CheckEnforcement", { eventName, trafficWindowHours: hours });
      return {
        mode: answer.mode as SchemaEnforcement["mode"],
        trafficWindowHours: count(answer.trafficWindowHours),
        totalSchemas: count(answer.totalSchemas),
        schemas: all(answer.schemas, readCheck),
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
