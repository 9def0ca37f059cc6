import type { Clock } from "../../../../kit/clock.ts";
import { Fault, invalid } from "../../../../kit/fault.ts";
import { sizedCache } from "../../../../kit/sized-cache.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../../store/store.ts";
import {
  type AttributeRange,
  type AttributeType,
  attributeNamesMax,
  namesKeptMax,
  otherType,
} from "../../attributes/rules.ts";

/** A name and the type that it is to have. */
export interface TypedName {
  name: string;
  type: AttributeType;
}

type Types = ReadonlyMap<string, AttributeType>;

/** The names of an environment's attributes. A name keeps its type, so that what a node has read stays true. */
export interface AttributeNames {
  /** Makes what is new. Throws `invalid_argument` for a name of another type, `resource_exhausted` without room. */
  declare(session: Session, environmentId: string, wanted: readonly TypedName[]): Promise<void>;
  /** The same in a transaction of its own; undefined when this node knows that nothing is to do. */
  require(environmentId: string, wanted: readonly TypedName[]): Promise<void> | undefined;
  /** Throws `invalid_argument` for a filter of another type, and for an order by a name that no run has had. */
  requireTypes(environmentId: string, filters: readonly AttributeRange[], order?: string): Promise<void>;
}

export interface AttributeNamesDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  shareEnvironment(session: Session, environmentId: string): Promise<void>;
}

export function openAttributeNames({ store, clock, shareEnvironment }: AttributeNamesDeps): AttributeNames {
  const kept = sizedCache<Types>({ entriesMax: namesKeptMax, charsMax: namesKeptMax * attributeNamesMax });

  const keep = (environmentId: string, found: Types): void =>
    kept.set(environmentId, new Map([...(kept.get(environmentId) ?? []), ...found]), found.size);

  async function declare(session: Session, environmentId: string, wanted: readonly TypedName[]) {
    const names = wanted.map(({ name }) => name);
    const before = await typesOf(session, environmentId, names);
    requireSame(before, wanted);
    const fresh = wanted.filter(({ name }) => !before.has(name));
    if (fresh.length === 0) return;
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
        name: column.text(fresh.map(({ name }) => name)),
        type: column.text(fresh.map(({ type }) => type)),
      })} WHERE true ORDER BY v.name ON CONFLICT (environment_id, name) DO NOTHING`);
    // Another transaction may have been first, with another type.
    requireSame(await typesOf(session, environmentId, names), wanted);
  }

  const isKnown = (environmentId: string, wanted: readonly TypedName[]): boolean => {
    const types = kept.get(environmentId);
    return types !== undefined && wanted.every(({ name, type }) => types.get(name) === type);
  };

  return {
    declare,

    require(environmentId, wanted) {
      if (isKnown(environmentId, wanted)) return undefined;
      return store
        .write(async (session) => {
          await shareEnvironment(session, environmentId);
          await declare(session, environmentId, wanted);
        })
        .then(() => keep(environmentId, new Map(wanted.map(({ name, type }) => [name, type]))));
    },

    async requireTypes(environmentId, filters, order) {
      const names = [...filters.map(({ name }) => name), ...(order === undefined ? [] : [order])];
      const unread = names.filter((name) => !kept.get(environmentId)?.has(name));
      if (unread.length > 0) keep(environmentId, await typesOf(store, environmentId, unread));
      const types = kept.get(environmentId);
      for (const { name, type } of filters) {
        const known = types?.get(name);
        if (known !== undefined && type !== undefined && known !== type)
          throw invalid("attributes", otherType(name, known, type));
      }
      if (order !== undefined && !types?.has(order))
        throw invalid("orderBy.name", `no run has had an attribute ${order}`);
    },
  };
}

async function typesOf(reader: StoreReader & Pick<Session, "seams">, environmentId: string, names: string[]) {
  const rows = await reader.all<TypedName>(sql`SELECT name, type FROM run_attribute_names
    WHERE environment_id = ${environmentId} AND name ${reader.seams.among(column.text(names))}`);
  return new Map(rows.map(({ name, type }) => [name, type]));
}

function requireSame(known: Types, wanted: readonly TypedName[]): void {
  for (const { name, type } of wanted) {
    const before = known.get(name);
    if (before !== undefined && before !== type)
      throw invalid(`attributes.${name}`, otherType(name, before, type));
  }
}
