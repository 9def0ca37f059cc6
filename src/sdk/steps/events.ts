import { projectionOf } from "../projections/projection.ts";
import type { CreateProjection } from "../projections/projection-types.ts";
import { NonRetryableError } from "../wire/errors.ts";
import { checkedBy, type JsonSchemaText, type StandardSchema, toldJsonSchema } from "../wire/json-schema.ts";
import type { EventMap } from "../wire/types.ts";
import { createFunction, type FunctionOptions, type Handler } from "./function.ts";
import type { EventReader, SvcFunction } from "./svc-function.ts";

/** What `defineEvents` takes for an event besides its type. */
export interface EventRule<Data = unknown> {
  /** Checks data where it is emitted and again where it is handled; its result replaces the data. */
  schema?: StandardSchema<Data>;
  /** What `client.schemas.push()` registers; when left out, what `schema` tells. */
  jsonSchema?: JsonSchemaText;
  /** The version that is emitted and handled. Default 1. */
  version?: number;
  /** By version: how its data becomes data of the next one. Handlers see older events only after that. */
  upcast?: Readonly<Record<number, (data: never) => unknown>>;
}

export type EventRules<Events> = { readonly [Name in keyof Events]?: EventRule<Events[Name]> };

/** The events of an application: their types and, if wanted, how they are checked and brought up to date. */
export interface EventRegistry<Events extends EventMap = EventMap> extends EventReader {
  /** The JSON Schema of each event with a rule, in the emitted version; undefined if the rule has none. */
  schemas(): { name: string; version: number; schema: JsonSchemaText | undefined }[];
  /** `createFunction` with these events. */
  createFunction<Name extends keyof Events & string, Output = unknown>(
    options: FunctionOptions<Name, Events[Name], Events>,
    handler: Handler<Events[Name], Name, Events, Output>,
  ): SvcFunction<Events[Name], Output>;
  /** `createProjection` with these events. */
  readonly createProjection: CreateProjection<Events>;
}

/**
 * Types for emitting, triggers and waits: `defineEvents<{ "order.placed": { orderId: string } }>()`. With
 * rules, a schema checks data and older versions are brought up to date; types then follow from schemas.
 */
export function defineEvents<Events extends EventMap = EventMap>(
  rules: EventRules<Events> = {},
): EventRegistry<Events> {
  const byName = new Map(Object.entries(rules as Record<string, EventRule>));

  async function check(name: string, data: unknown): Promise<unknown> {
    const schema = byName.get(name)?.schema;
    if (!schema) return data;
    const checked = await checkedBy(schema, data);
    if ("value" in checked) return checked.value;
    throw new NonRetryableError(`the data of ${name} is not what its schema asks for: ${checked.issues}`, {
      code: "VALIDATION_ERROR",
    });
  }

  const registry: EventRegistry<Events> = {
    createFunction: (options, handler) =>
      ({ ...createFunction(options, handler as never), events: registry }) as never,
    createProjection: ((given: never) =>
      projectionOf(given, byName.size > 0 ? registry : undefined)) as never,
    schemas: () =>
      Array.from(byName, ([name, { schema, jsonSchema, version = 1 }]) => ({
        ...{ name, version },
        schema: jsonSchema ?? (schema && toldJsonSchema(schema)),
      })),
    version: (name) => byName.get(name)?.version,
    check,
    async read(event) {
      const rule = byName.get(event.name);
      if (!rule) return event;
      let { data, version } = event;
      for (const latest = rule.version ?? 1; version < latest; version++) {
        const upcast = rule.upcast?.[version];
        // A version without a step of its own has the form of the next one.
        if (upcast) data = upcast(data as never);
      }
      return { ...event, data: await check(event.name, data), version };
    },
  };
  return registry;
}
