import { breather } from "../../../kit/breather.ts";
import { CelBudget, CelError } from "../../../kit/cel/cel.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import { SchemaError } from "../../../kit/json-schema/json-schema.ts";
import { jsonText } from "../../../kit/payload-json.ts";
import { upcastBytesMax, upcastItemsMax, upcastStepsMax } from "./limits.ts";
import type { SchemaRow } from "./rows.ts";
import { type Upcast, upcastOf } from "./upcast.ts";

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
