import { type CelProgram, compileCel } from "../../../kit/cel/cel.ts";
import { runFailedEvent } from "../../../kit/event-names.ts";
import { missing } from "../../../kit/fault.ts";
import type { SeenEvent } from "../../../kit/stored-event.ts";
import { sizedCache } from "../../../kit/ttl-cache.ts";
import type { Store } from "../../../store/store.ts";
import type { EventSchemas } from "../../log/schemas/service.ts";
import type {
  Definitions,
  DefinitionsCache,
  FunctionDefinition,
  FunctionRecord,
  Trigger,
  TriggerDefinition,
} from "./definition.ts";
import { definitionsKeptMax } from "./limits.ts";
import { definitionsVersion, readDefinitions, readVersion } from "./rows.ts";
import { triggerVariables } from "./rules.ts";
import { flowExpressions } from "./start-options.ts";
import { isPattern, openPatternIndex } from "./trigger-patterns.ts";

/**
 * Of all definitions that a node keeps in memory, as JSON text; those of the last environment that was read
 * always.
 */
const definitionsCharsMax = 256 * 1024 * 1024;

/** Reads the schemas of an environment's events. What `before` has compiled is taken over. */
export type SchemasRead = (
  environmentId: string,
  before: EventSchemas | undefined,
) => Promise<EventSchemas | undefined>;

/** Functions of every environment this node emits into, as of the head they were read with. */
export function openDefinitions(
  store: Store,
  readSchemas: SchemasRead = async () => undefined,
): DefinitionsCache {
  const kept = sizedCache<Definitions>({ entriesMax: definitionsKeptMax, charsMax: definitionsCharsMax });
  const reading = new Map<string, Promise<Definitions>>();

  async function read(environmentId: string): Promise<Definitions> {
    const found = await readDefinitions(store, environmentId);
    if (!found) {
      kept.delete(environmentId);
      throw missing("environment", environmentId);
    }
    // Read after the head: if they are newer than its version, every flush decided by them is rolled back.
    const schemas = await readSchemas(environmentId, kept.get(environmentId)?.schemas);
    const { version, records, isMetered } = found;
    const definitions = { ...compile(version, records), isMetered, schemas };
    kept.set(environmentId, definitions, found.chars + (schemas?.chars ?? 0));
    return definitions;
  }

  function reload(environmentId: string): Promise<Definitions> {
    // A read that began before the change would answer the old ones once more; the flush asks again then.
    let answer = reading.get(environmentId);
    if (!answer) {
      answer = read(environmentId).finally(() => reading.delete(environmentId));
      reading.set(environmentId, answer);
    }
    return answer;
  }

  return {
    known: (environmentId) => kept.get(environmentId),
    of: async (environmentId) => kept.get(environmentId) ?? reload(environmentId),
    async current(environmentId) {
      const version = await definitionsVersion(store, environmentId);
      const known = kept.get(environmentId);
      if (known !== undefined && known.version === version) return known;
      const found = await reload(environmentId);
      // `reload` may have joined a read that began before the change.
      return version === undefined || found.version >= version ? found : reload(environmentId);
    },
    reload,
    forget: (environmentId) => kept.delete(environmentId),
  };
}

const none: readonly Trigger[] = [];

function compile(
  version: number,
  found: readonly FunctionRecord[],
): Omit<Definitions, "schemas" | "isMetered"> {
  const triggers = new Map<string, Trigger[]>();
  const patterns = openPatternIndex<Trigger>();
  const records = found.filter(({ isUnread }) => !isUnread);
  for (const record of records) {
    if (record.status !== "active") continue;
    const expressions = flowExpressions(record.definition);
    for (const { event, expression } of record.definition.triggers) {
      if (event === undefined) continue;
      const trigger = {
        record,
        expression,
        flowExpressions: expressions,
        isWide: isPattern(event),
        matches: matcher(expression),
      };
      if (trigger.isWide) {
        patterns.add(event, trigger);
        continue;
      }
      const list = triggers.get(event);
      if (list) list.push(trigger);
      else triggers.set(event, [trigger]);
    }
  }
  return {
    version,
    unread: found.filter(({ isUnread }) => isUnread),
    functions: new Map(records.map((record) => [record.definition.id, record])),
    triggersOf(eventName) {
      const exact = triggers.get(eventName) ?? none;
      // A pattern that takes everything must not take its own failures, too.
      return patterns.isEmpty() || eventName === runFailedEvent
        ? exact
        : [...exact, ...patterns.of(eventName)];
    },
  };
}

/** The function's triggers for an event's name, as if it were active and had these alone. */
export const triggersAlone = (
  record: FunctionRecord,
  triggers: readonly TriggerDefinition[],
): Definitions["triggersOf"] =>
  compile(0, [{ ...record, status: "active", definition: { ...record.definition, triggers } }]).triggersOf;

/**
 * Programs are compiled on first use and shared by their text (kit/cel). An expression that fails does not
 * match.
 */
function matcher(expression: string | undefined): Trigger["matches"] {
  if (expression === undefined) return () => true;
  let program: CelProgram | undefined;
  return (event: SeenEvent, budget) => {
    try {
      program ??= compileCel(expression, { variables: triggerVariables, result: "bool" });
      const seen = { event: { ...event, timestamp: new Date(event.timestamp) }, data: event.data };
      return program.run(seen, budget) === true;
    } catch {
      return false;
    }
  };
}

/** The definition a run is pinned to. */
export type DefinitionAt = (
  environmentId: string,
  functionId: string,
  version: number,
) => Promise<FunctionDefinition>;

/** JSON text of pinned definitions that a node keeps in memory. */
const pinnedCharsMax = 32 * 1024 * 1024;

export function openDefinitionAt(store: Store): DefinitionAt {
  const pinned = sizedCache<FunctionDefinition>({
    entriesMax: definitionsKeptMax,
    charsMax: pinnedCharsMax,
  });
  return async (environmentId, functionId, version) => {
    const key = `${environmentId}\n${functionId}\n${version}`;
    const known = pinned.get(key);
    if (known) return known;
    const found = await readVersion(store, environmentId, functionId, version);
    if (!found)
      throw new Error(`run pinned to version ${version} of ${functionId}, which was never recorded`);
    pinned.set(key, found.definition, found.chars);
    return found.definition;
  };
}
