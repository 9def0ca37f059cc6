import { Fault } from "../../../kit/fault.ts";
import {
  type CompiledSchema,
  compileInSteps,
  SchemaError,
  TooMuchToCheck,
} from "../../../kit/json-schema/json-schema.ts";
import type { StoreReader } from "../../../store/store.ts";
import * as rows from "./rows.ts";
import { brokenRule, placeText, type SchemaMode, unknownVersion } from "./rules.ts";

/** What a schema says of one event. */
export interface SchemaMark {
  /** The schema that it was checked by; null when its version has none. */
  hash: string | null;
  /** The rule that it breaks, as the schema has it: never a part of the data. Null when it keeps all. */
  breach: string | null;
}

export interface SchemaVerdict {
  mark: SchemaMark;
  /** Why the event must not be written; undefined when it may. */
  refused: Fault | undefined;
}

export interface GovernedEvent {
  name: string;
  version: number;
  value: unknown;
  /** Its place in the caller's batch. */
  at?: string | undefined;
}

/** The schemas of an environment as of one `heads.definitions_version`. */
export interface EventSchemas {
  /** The characters of their texts. */
  readonly chars: number;
  governs(eventName: string): boolean;
  /**
   * Looks at an event of a governed name. It yields steps, each to be called in its turn, so that other
   * callers wait for one of them at most.
   */
  verdictOf(event: GovernedEvent): Generator<() => void, SchemaVerdict>;
}

/** One text, compiled when the first event asks for it. */
class HeldSchema {
  readonly hash: string;
  #text: string;
  #compiled: CompiledSchema | SchemaError | undefined;

  constructor(hash: string, text: string) {
    this.hash = hash;
    this.#text = text;
  }

  *compiled(): Generator<() => void, CompiledSchema | SchemaError> {
    if (this.#compiled) return this.#compiled;
    const steps = compileInSteps(this.#text);
    while (!this.#compiled)
      yield () => {
        try {
          const step = steps.next();
          if (step.done) this.#compiled = step.value;
        } catch (error) {
          if (!(error instanceof SchemaError)) throw error;
          this.#compiled = error;
        }
      };
    this.#text = "";
    return this.#compiled;
  }
}

type Held = ReadonlyMap<string, ReadonlyMap<number, HeldSchema>>;

/** What a schema's compiled form takes in memory, in characters, for each of its text. */
const compiledCharsAChar = 16;

class Governed implements EventSchemas {
  readonly chars: number;
  readonly byHash: ReadonlyMap<string, HeldSchema>;
  readonly #mode: SchemaMode;
  readonly #held: Held;

  constructor(mode: SchemaMode, held: Held, chars: number) {
    this.#mode = mode;
    this.#held = held;
    this.chars = chars * compiledCharsAChar;
    this.byHash = new Map(
      [...held.values()].flatMap((versions) => [...versions.values()].map((one) => [one.hash, one] as const)),
    );
  }

  governs(eventName: string): boolean {
    return this.#held.has(eventName);
  }

  *verdictOf(event: GovernedEvent): Generator<() => void, SchemaVerdict> {
    const versions = this.#held.get(event.name)!;
    const held = versions.get(event.version);
    if (!held) {
      const registered = [...versions.keys()].sort((a, b) => a - b);
      return this.#refusal({ hash: null, breach: "version" }, unknownVersion(event, registered));
    }
    const { hash } = held;
    const schema = yield* held.compiled();
    if (schema instanceof SchemaError)
      return this.#refusal({ hash, breach: "schema" }, unusable(event, schema));
    let verdict: SchemaVerdict | undefined;
    yield () => {
      verdict = this.#look(event, hash, schema);
    };
    return verdict!;
  }

  #look(event: GovernedEvent, hash: string, schema: CompiledSchema): SchemaVerdict {
    try {
      const breach = schema.breachOf(event.value);
      if (!breach) return { mark: { hash, breach: null }, refused: undefined };
      return this.#refusal({ hash, breach: placeText(breach.place) }, brokenRule(event, breach));
    } catch (error) {
      if (!(error instanceof TooMuchToCheck)) throw error;
      return this.#refusal({ hash, breach: "steps" }, tooMuch(event, error));
    }
  }

  #refusal(mark: SchemaMark, fault: Fault): SchemaVerdict {
    return { mark, refused: this.#mode === "enforce" ? fault : undefined };
  }
}

const unusable = ({ name, version }: GovernedEvent, { message }: SchemaError): Fault =>
  new Fault("failed_precondition", `version ${version} of the schema of ${name} cannot be used: ${message}`);

const tooMuch = ({ name, version, at = "" }: GovernedEvent, { message }: TooMuchToCheck): Fault => {
  const field = `${at}data`;
  return new Fault(
    "resource_exhausted",
    `${field}: ${message} by version ${version} of the schema of ${name}`,
    { field, code: "LIMIT_EXCEEDED" },
  );
};

/**
 * The schemas that events of the environment must keep; undefined when there are none, or the mode is `off`.
 * What `before` has compiled is taken over.
 */
export async function readSchemas(
  reader: StoreReader,
  environmentId: string,
  before: EventSchemas | undefined,
): Promise<EventSchemas | undefined> {
  const found = await rows.registered(reader, environmentId);
  const mode = found[0]?.schema_mode ?? "enforce";
  if (mode === "off" || !found.some(({ event_name }) => event_name !== null)) return undefined;
  const known = new Map(before instanceof Governed ? before.byHash : []);
  const wanted = [...new Set(found.map(({ hash }) => hash))].filter((hash) => !known.has(hash));
  if (wanted.length > 0)
    for (const { hash, schema_json } of await rows.textsOf(reader, environmentId, wanted))
      known.set(hash, new HeldSchema(hash, schema_json));
  const held = new Map<string, Map<number, HeldSchema>>();
  for (const { event_name: name, version, hash } of found) {
    const one = known.get(hash);
    // Deleted since: the definitions that this is read for are outdated by now.
    if (!one || name === null) continue;
    const versions = held.get(name);
    if (versions) versions.set(version, one);
    else held.set(name, new Map([[version, one]]));
  }
  return new Governed(
    mode,
    held,
    found.reduce((sum, { bytes }) => sum + bytes, 0),
  );
}
