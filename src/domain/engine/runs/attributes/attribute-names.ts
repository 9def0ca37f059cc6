import type { Clock, Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { Fault, invalid } from "../../../../kit/fault.ts";
import { column, sql } from "../../../../kit/sql.ts";
import { sizedCache } from "../../../../kit/ttl-cache.ts";
import type { Session, Store, StoreReader } from "../../../../store/store.ts";
import {
  type AttributeRange,
  type AttributeType,
  attributeNamesMax,
  isSet,
  namesKeptMax,
  otherType,
} from "../../attributes/rules.ts";
import { type RunReport, withoutAttributes } from "../execution/report.ts";

/** A name and the type that it is to have. */
export interface TypedName {
  name: string;
  type: AttributeType;
}

interface KnownName extends TypedName {
  /** When it was deleted; its values go. */
  deleted_at: Instant | null;
}

type KnownNames = ReadonlyMap<string, KnownName>;

/**
 * The names of an environment's attributes. A name keeps its type until it is deleted, which the statement
 * that writes a value finds out: what a node has read is forgotten then.
 */
export type AttributeNames = ReturnType<typeof openAttributeNames>;

export interface AttributeNamesDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  shareEnvironment(session: Session, environmentId: string): Promise<void>;
}

export function openAttributeNames({ store, clock, shareEnvironment }: AttributeNamesDeps) {
  const kept = sizedCache<KnownNames>({
    ...{ entriesMax: namesKeptMax, charsMax: namesKeptMax * attributeNamesMax },
  });

  const keep = (environmentId: string, asked: readonly string[], found: KnownNames): void => {
    const others = [...(kept.get(environmentId) ?? [])].filter(([name]) => !asked.includes(name));
    kept.set(environmentId, new Map([...others, ...found]), others.length + found.size);
  };

  /** Makes what is new, and answers all of them, held until the session ends. */
  async function make(session: Session, environmentId: string, wanted: readonly TypedName[]) {
    const names = wanted.map(({ name }) => name);
    const read = () => readNames(session, environmentId, names, session.seams.shareRow);
    const before = await read();
    requireSame(before, wanted);
    const fresh = wanted.filter(({ name }) => !before.has(name));
    if (fresh.length === 0) return before;
    const row = await session.one<{ count: number }>(
      sql`SELECT count(*) AS count FROM run_attribute_names WHERE environment_id = ${environmentId}`,
    );
    if (Number(row?.count ?? 0) + fresh.length > attributeNamesMax)
      throw new Fault(
        "resource_exhausted",
        `at most ${attributeNamesMax} names of attributes in one environment`,
      );
    await session.run(sql`INSERT INTO run_attribute_names (environment_id, name, type, created_at)
      SELECT ${environmentId}, v.name, v.type, ${sql.bigint(clock.now())}
      FROM ${session.seams.rowsFrom("v", {
        ...columnsOf(fresh, { text: "name type" }),
      })} WHERE true ORDER BY v.name ON CONFLICT (environment_id, name) DO NOTHING`);
    // Another transaction may have been first, with another type.
    const after = await read();
    requireSame(after, wanted);
    return after;
  }

  const isKnown = (environmentId: string, wanted: readonly TypedName[]): boolean => {
    const known = kept.get(environmentId);
    return known !== undefined && wanted.every(({ name, type }) => known.get(name)?.type === type);
  };

  return {
    /**
     * Makes what is new, and keeps all of them from being deleted until the session ends. Throws
     * `invalid_argument` for a name of another type, `resource_exhausted` without room, `failed_precondition`
     * for a name whose values are being deleted.
     */
    async declare(session: Session, environmentId: string, wanted: readonly TypedName[]) {
      for (const { name, deleted_at } of (await make(session, environmentId, wanted)).values())
        if (deleted_at !== null)
          throw new Fault(
            "failed_precondition",
            `attribute ${name} is being deleted, declare it when it is gone`,
          );
    },

    /**
     * Makes what is new in a transaction of its own; undefined when this node knows that nothing is to do.
     * What is being deleted is no fault: a value that is set meanwhile goes with the others.
     */
    require(environmentId: string, wanted: readonly TypedName[]): Promise<void> | undefined {
      if (isKnown(environmentId, wanted)) return undefined;
      const names = wanted.map(({ name }) => name);
      return store
        .write(async (session) => {
          await shareEnvironment(session, environmentId);
          return make(session, environmentId, wanted);
        })
        .then((found) => keep(environmentId, names, found));
    },

    /**
     * Throws `invalid_argument` for a filter of another type, and for an order by a name that no run has had.
     */
    async requireTypes(environmentId: string, filters: readonly AttributeRange[], order?: string) {
      const problem = () => {
        const known = kept.get(environmentId);
        if (order !== undefined && !known?.has(order))
          return invalid("orderBy.name", `no run has had an attribute ${order}`);
        for (const { name, type } of filters) {
          const found = known?.get(name);
          if (found && type !== undefined && found.type !== type)
            return invalid("attributes", otherType(name, found.type, type));
        }
        return undefined;
      };
      const names = [...filters.map(({ name }) => name), ...(order === undefined ? [] : [order])];
      const isRead = names.every((name) => kept.get(environmentId)?.has(name));
      // What this node has read may have been deleted and made again with another type.
      if (!isRead || problem()) keep(environmentId, names, await readNames(store, environmentId, names));
      const fault = problem();
      if (fault) throw fault;
    },

    /** A value could not be written because its name is not what this node has read. */
    forget: (environmentId: string) => kept.delete(environmentId),
  };
}

async function readNames(
  reader: StoreReader & Pick<Session, "seams">,
  environmentId: string,
  names: string[],
  held = sql.empty,
): Promise<KnownNames> {
  const rows = await reader.all<KnownName>(sql`SELECT name, type, deleted_at FROM run_attribute_names
    WHERE environment_id = ${environmentId} AND name ${reader.seams.among(column.text(names))} ${held}`);
  return new Map(rows.map((row) => [row.name, row]));
}

/** A name whose values go takes none of any type: what is set meanwhile goes with them. */
function requireSame(known: KnownNames, wanted: readonly TypedName[]): void {
  for (const { name, type } of wanted) {
    const before = known.get(name);
    if (before && before.deleted_at === null && before.type !== type)
      throw invalid(`attributes.${name}`, otherType(name, before.type, type));
  }
}

const isRefusal = (error: unknown): error is Fault =>
  error instanceof Fault && (error.kind === "invalid_argument" || error.kind === "resource_exhausted");

export type NamedReports = ReturnType<typeof openNamedReports>;

/**
 * Submits reports once the names of their attributes are known. Attributes that cannot be stored fail their
 * run: its worker would report them again.
 */
export function openNamedReports(
  names: Pick<AttributeNames, "require" | "forget">,
  submit: (report: RunReport) => Promise<void>,
  onRefused: () => void,
) {
  const naming = ({ environmentId, attributes }: RunReport) =>
    attributes && names.require(environmentId, attributes.filter(isSet));
  const named = (report: RunReport, making: Promise<void>): Promise<RunReport> =>
    making.then(
      () => report,
      (error: unknown) => {
        if (!isRefusal(error)) throw error;
        onRefused();
        return withoutAttributes(report, error.message);
      },
    );
  return {
    onRefused,
    /** Submits a report once the names of its attributes are known. */
    submit(report: RunReport) {
      const making = naming(report);
      return making ? named(report, making).then(submit) : submit(report);
    },
    /**
     * The same report when a name of its attributes was deleted since: with the name made again, or refused.
     */
    async again(report: RunReport): Promise<RunReport> {
      names.forget(report.environmentId);
      return named(report, naming(report) ?? Promise.resolve());
    },
  };
}
