import { Fault, missing } from "../../../kit/fault.ts";
import { SliceSize } from "../../../kit/slice-size.ts";
import type { Basics, LeaderWrite, StoreReader } from "../../../store/store.ts";
import {
  attributePurgeMs,
  attributeRunsCountedMax,
  attributeSettleMs,
  namesCountedAtOnce,
  purgedEnvironmentsMax,
} from "./limits.ts";
import * as rows from "./rows.ts";

export interface CountedName extends rows.AttributeNameRow {
  /** Runs that have it, as far as they are counted. */
  runs: number;
  /** There may be more. */
  isCapped: boolean;
}

export type Attributes = ReturnType<typeof openAttributes>;

/** Functions of an environment as far as they declare attributes. */
interface Declaring {
  version: number;
  functions: ReadonlyMap<string, { definition: { attributes?: readonly { name: string }[] } }>;
}

export interface AttributesDeps extends Basics<"store" | "clock"> {
  definitions: { current(environmentId: string): Promise<Declaring> };
  definitionsVersion(reader: StoreReader, environmentId: string): Promise<number | undefined>;
}

export function openAttributes({ store, clock, definitions, definitionsVersion }: AttributesDeps) {
  const size = new SliceSize(clock, { flushCount: store.flushCount });
  /** Undefined when the functions changed meanwhile. */
  async function deleteBy(environmentId: string, name: string) {
    const { version, functions } = await definitions.current(environmentId);
    return store.write(async (session) => {
      const row = await rows.holdName(session, environmentId, name);
      if (!row) throw missing("attribute", name);
      if (row.deleted_at !== null) return row;
      // Whoever registers a function with the name holds it until its commit, which raises the version.
      if ((await definitionsVersion(session, environmentId)) !== version) return undefined;
      for (const [id, { definition }] of functions)
        if (definition.attributes?.some((one) => one.name === name))
          throw new Fault(
            "failed_precondition",
            `function ${id} takes attribute ${name} from its events: register it without that first`,
          );
      const at = clock.now();
      await rows.markDeleted(session, environmentId, { name, at });
      return { ...row, deleted_at: at };
    });
  }

  return {
    async list(environmentId: string): Promise<CountedName[]> {
      const names = await rows.listNames(store, environmentId);
      const listed: CountedName[] = [];
      for (let from = 0; from < names.length; from += namesCountedAtOnce) {
        const some = names.slice(from, from + namesCountedAtOnce);
        const counts = await rows.runsOf(
          store,
          environmentId,
          some.map(({ name }) => name),
        );
        for (const row of some) {
          const found = counts.get(row.name) ?? 0;
          const runs = Math.min(found, attributeRunsCountedMax);
          listed.push({ ...row, runs, isCapped: found > runs });
        }
      }
      return listed;
    },

    /** Nothing finds runs by it from here on; its values go in the background, and then the name. */
    async delete(environmentId: string, name: string): Promise<rows.AttributeNameRow> {
      for (;;) {
        const deleted = await deleteBy(environmentId, name);
        if (deleted) return deleted;
      }
    },

    /** The tick of duty `attributes.purge`. */
    async purgeOnce(write: LeaderWrite) {
      const until = clock.elapsed() + attributePurgeMs;
      do {
        const before = clock.now() - attributeSettleMs;
        const leaving = await rows.leavingNames(store, { before, limit: purgedEnvironmentsMax });
        if (leaving.length === 0) return;
        for (const one of leaving) {
          const limit = size.rows;
          const found = await size.delete(write, (session) => rows.deleteValues(session, one, limit));
          if (found < limit) await write((session) => rows.deleteName(session, one));
          await size.rest();
        }
      } while (clock.elapsed() < until);
    },
  };
}
