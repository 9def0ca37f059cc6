import { breather } from "../../../kit/breather.ts";
import { CelBudget, CelError, type CelProgram, compileCel } from "../../../kit/cel/cel.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import { memberOf, partsOf } from "../../../kit/json-schema/document.ts";
import { SchemaError } from "../../../kit/json-schema/json-schema.ts";
import { jsonText, payloadLevelsMax } from "../../../kit/payload-json.ts";
import {
  upcastBytesMax,
  upcastExpressionsMax,
  upcastItemsMax,
  upcastOperationsMax,
  upcastStepsMax,
} from "./limits.ts";
import type { SchemaRow } from "./rows.ts";

/** The word of a schema under which it says how data of the version before becomes its own. */
export const upcastKeyword = "x-upcast";

/** What one expression may make, as JSON text. */
const computedCharsMax = 64 * 1024;

/** Changes data in place; answers the whole, which another may take the place of. */
type DataChange = (data: unknown, budget: CelBudget) => unknown;

/** How data of the version before becomes data of a schema. */
interface Upcast {
  readonly description: string;
  /** Changes the data itself, and answers it. Throws CelError for an expression that fails. */
  apply(data: unknown, budget: CelBudget): unknown;
}

type OperationFields = Readonly<Record<string, unknown>>;

const setOwn = (target: object, part: string, value: unknown): void => {
  Object.defineProperty(target, part, { value, writable: true, enumerable: true, configurable: true });
};

function takeOut(data: unknown, parts: readonly string[]): { found: boolean; value: unknown } {
  const parent = parts.slice(0, -1).reduce(memberOf, data);
  const last = parts.at(-1)!;
  const value = memberOf(parent, last);
  if (value === undefined) return { found: false, value };
  if (Array.isArray(parent)) parent.splice(Number(last), 1);
  else delete (parent as Record<string, unknown>)[last];
  return { found: true, value };
}

/** Makes the objects on the way. What is no object stands in the way, and nothing is put. */
function put(data: unknown, parts: readonly string[], value: unknown): unknown {
  const [first, ...rest] = parts;
  if (first === undefined) return value;
  if (typeof data !== "object" || data === null) return data;
  const inner = memberOf(data, first);
  if (Array.isArray(data)) {
    if (inner !== undefined) data[Number(first)] = put(inner, rest, value);
    return data;
  }
  setOwn(
    data,
    first,
    rest.length > 0 && inner === undefined ? put({}, rest, value) : put(inner, rest, value),
  );
  return data;
}

const operations: Readonly<Record<string, (fields: OperationFields, place: string) => DataChange>> = {
  rename(fields, place) {
    const from = pathAt(fields, "path", place);
    if (typeof fields.to !== "string") throw new SchemaError(`${place}/to`, "must be the new name, a text");
    return moved(from, [...from.slice(0, -1), fields.to]);
  },
  move: (fields, place) => moved(pathAt(fields, "from", place), pathAt(fields, "to", place)),
  default(fields, place) {
    const path = pathAt(fields, "path", place);
    if (fields.value === undefined) throw new SchemaError(`${place}/value`, "must be given");
    return (data) =>
      path.reduce(memberOf, data) === undefined ? put(data, path, structuredClone(fields.value)) : data;
  },
  drop(fields, place) {
    const path = pathAt(fields, "path", place);
    return (data) => {
      takeOut(data, path);
      return data;
    };
  },
  cel(fields, place) {
    const path = pathAt(fields, "path", place);
    const program = programAt(fields.expression, `${place}/expression`);
    return (data, budget) => put(data, path, plain(program.run({ data }, budget)));
  },
};

function moved(from: readonly string[], to: readonly string[]): DataChange {
  return (data) => {
    const { found, value } = takeOut(data, from);
    return found ? put(data, to, value) : data;
  };
}

/** CEL has its own whole numbers and maps. A text that doubles with each operation must not fill memory. */
function plain(value: unknown): unknown {
  const text = JSON.stringify(value ?? null, (_key, one) => {
    if (typeof one === "bigint") return Number(one);
    if (one instanceof Map) return Object.fromEntries(one);
    if (isForeign(one)) throw new CelError("a result must be JSON: no bytes, durations or unsigned numbers");
    return one;
  });
  if (text.length > computedCharsMax)
    throw new CelError(`a result has at most ${computedCharsMax} characters`);
  return JSON.parse(text);
}

/** A value of a class: CEL has some that JSON has no form of. */
const isForeign = (value: unknown): boolean =>
  typeof value === "object" &&
  value !== null &&
  !Array.isArray(value) &&
  ![Object.prototype, null].includes(Object.getPrototypeOf(value));

function pathAt(fields: OperationFields, name: string, place: string): string[] {
  const text = fields[name];
  const parts = typeof text === "string" ? partsOf(text) : undefined;
  if (!parts || parts.length === 0)
    throw new SchemaError(`${place}/${name}`, 'must be a JSON pointer, as "/customer/name"');
  // No data is deeper, and what is put makes each object on the way.
  if (parts.length > payloadLevelsMax)
    throw new SchemaError(`${place}/${name}`, `must have at most ${payloadLevelsMax} parts`);
  return parts;
}

function programAt(expression: unknown, place: string): CelProgram {
  if (typeof expression !== "string") throw new SchemaError(place, "must be a text");
  try {
    return compileCel(expression, { variables: ["data"], result: "any" });
  } catch (error) {
    throw error instanceof CelError ? new SchemaError(place, error.message) : error;
  }
}

/** What a schema says of the version before; undefined when it says nothing. Throws SchemaError. */
export function upcastOf(schemaJson: string): Upcast | undefined {
  const schema: unknown = JSON.parse(schemaJson);
  const list = memberOf(schema, upcastKeyword);
  if (list === undefined) return undefined;
  const at = `/${upcastKeyword}`;
  if (!Array.isArray(list) || list.length > upcastOperationsMax)
    throw new SchemaError(at, `must be a list of at most ${upcastOperationsMax} operations`);
  if (list.filter((fields: unknown) => memberOf(fields, "op") === "cel").length > upcastExpressionsMax)
    throw new SchemaError(at, `must have at most ${upcastExpressionsMax} operations cel`);
  const changes = list.map((fields: unknown, index) => {
    const place = `${at}/${index}`;
    const op = memberOf(fields, "op");
    if (typeof op !== "string" || !Object.hasOwn(operations, op))
      throw new SchemaError(`${place}/op`, `must be one of ${Object.keys(operations).join(", ")}`);
    return { op, change: operations[op]!(fields as OperationFields, place) };
  });
  return {
    description: changes.map(({ op }) => op).join(", "),
    apply: (data, budget) => changes.reduce((changed, { change }) => change(changed, budget), data),
  };
}

export interface UpcastStep {
  fromVersion: number;
  toVersion: number;
  description: string;
}

export interface Upcasted {
  data: unknown;
  /** The known changes that were applied, in order; empty when no schema on the way says any. */
  steps: UpcastStep[];
}

/** The versions of a name with what each says of the one before it. */
export type UpcastChain = ReturnType<typeof upcastChain>;

/** `rows` are those of one name, by version. */
export function upcastChain(
  rows: readonly SchemaRow[],
  { clock, environmentId }: { clock: Pick<Clock, "elapsed" | "sleep">; environmentId: string },
) {
  const read = new Map<number, Upcast | undefined>();
  const breathe = breather(clock, environmentId);
  const upcastAt = ({ version, schema_json }: SchemaRow): Upcast | undefined => {
    if (!read.has(version)) read.set(version, upcastOf(schema_json));
    return read.get(version);
  };

  return {
    has: (version: number) => rows.some((row) => row.version === version),
    /** The latest version. */
    latest: rows.at(-1)?.version ?? 0,
    /**
     * Changes the data itself. A version that says nothing of the one before has its form.
     * `failed_precondition` when a change fails, or the data grows too large.
     */
    async apply(
      data: unknown,
      from: number,
      to: number,
      budget = new CelBudget(upcastItemsMax),
    ): Promise<Upcasted> {
      const steps: UpcastStep[] = [];
      let changed = data;
      let before = from;
      for (const row of rows) {
        if (row.version <= from || row.version > to) continue;
        await breathe();
        try {
          const upcast = upcastAt(row);
          if (upcast) {
            if (steps.length === upcastStepsMax)
              throw new SchemaError("", `is behind ${upcastStepsMax} others`);
            changed = upcast.apply(changed, budget);
            steps.push({ fromVersion: before, toVersion: row.version, description: upcast.description });
          }
        } catch (error) {
          throw failed(row, error);
        }
        before = row.version;
      }
      if (steps.length > 0) jsonText("data", changed, upcastBytesMax);
      return { data: changed, steps };
    },
  };
}

function failed({ event_name, version }: SchemaRow, error: unknown): unknown {
  if (!(error instanceof CelError || error instanceof SchemaError)) return error;
  return new Fault(
    "failed_precondition",
    `data cannot be brought up to version ${version} of ${event_name}: ${error.message}`,
  );
}
