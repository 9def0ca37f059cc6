import { thingsOf, thingsOfEvent } from "../../../gate/things.ts";
import type { Instant } from "../../../kit/clock.ts";
import type { Thing } from "../../../kit/operation.ts";
import * as rows from "./rows.ts";
import { type CausalKind, type CausalName, pairOf, readPair, textOf } from "./rules.ts";

/** One thing of an answer. */
export interface CausalThing extends CausalName {
  name: string;
  status: string;
  at: Instant;
  /** Negative for causes. */
  depth: number;
  entity?: { id: string; version: number };
  /** What deny policies are asked about. */
  shows: readonly Thing[];
}

type Found = Omit<CausalThing, "depth">;

const plain = { name: "", status: "" };

type Read = (reader: rows.CausalReader, look: rows.CausalLook) => Promise<Found[]>;

/** How a run's status is told; the rule of the engine. */
export type RunStatusOf = (stored: string, state: string | null) => string;

const readers = (statusOf: RunStatusOf): Record<CausalKind, Read> => ({
  event: async (reader, look) =>
    (await rows.eventsById(reader, look)).map(({ id, name, at, entity_id, entity_version }) => ({
      ...{ ...plain, kind: "event", id, name, at, shows: thingsOfEvent({ name, entity_id }) },
      ...(entity_id !== null && { entity: { id: entity_id, version: entity_version! } }),
    })),
  run: async (reader, look) =>
    (await rows.runsById(reader, look)).map(({ id, function_id: name, status, state, created_at: at }) => ({
      ...{ kind: "run", id, name, status: statusOf(status, state), at, shows: thingsOf("run", id) },
    })),
  async step(reader, { environmentId, ids }) {
    const found: Found[] = [];
    for (const id of ids) {
      const pair = readPair(id);
      const step = await rows.stepOf(reader, environmentId, pair);
      if (step)
        found.push({
          ...{ kind: "step", id, name: step.name, status: step.status, at: step.created_at },
          shows: thingsOf("run", pair[0]),
        });
    }
    return found;
  },
  message: async (reader, look) =>
    (await rows.messagesAt(reader, look)).map(({ position, topic, at }) => ({
      ...{ ...plain, kind: "message", id: String(position), name: topic, at },
      shows: thingsOf("event", `topic:${topic}`),
    })),
  delivery: async (reader, look) =>
    (await rows.deliveriesById(reader, look)).map(({ id, source_id: name, status, created_at: at }) => ({
      ...{ kind: "delivery", id, name, status, at, shows: thingsOf("webhook", name) },
    })),
  letter: async (reader, { environmentId, ids }) =>
    (await rows.lettersAt(reader, environmentId, ids.map(readPair))).map((one) => ({
      ...{ ...plain, kind: "letter", id: pairOf(one.endpoint_id, one.event_id), name: one.endpoint_id },
      ...{ at: one.dead_at, shows: thingsOfEvent({ name: one.event_name, entity_id: one.entity_id }) },
    })),
});

/** What is stored of these things, by their text; those that are gone or foreign are left out. */
export function openThings(reader: rows.CausalReader, statusOf: RunStatusOf) {
  const readOf = readers(statusOf);
  return async (environmentId: string, named: readonly CausalName[]): Promise<Map<string, Found>> => {
    const found = new Map<string, Found>();
    for (const [kind, own] of Map.groupBy(named, (one) => one.kind)) {
      const ids = own.map(({ id }) => id);
      for (const thing of await readOf[kind](reader, { environmentId, ids, most: ids.length }))
        found.set(textOf(thing), thing);
    }
    return found;
  };
}
