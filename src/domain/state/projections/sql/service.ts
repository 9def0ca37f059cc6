import { createHash } from "node:crypto";
import { Fault, invalid } from "../../../../kit/fault.ts";
import type {
  EnvironmentDatabases,
  FoldTable,
  QueryAnswer,
} from "../../../../store/environment-databases.ts";
import type { Basics, Session } from "../../../../store/store.ts";
import type { Queries } from "../../query/service.ts";
import { noteChange } from "../changes.ts";
import { descriptionBytesMax, foldRowsDefault, foldTableNameMax, handlersMax } from "../limits.ts";
import { type GenerationKey, getGenerations, getProjection, type ProjectionKey } from "../rows.ts";
import { definitionOf, type ProjectionStatus, unknownProjection } from "../rules.ts";
import { type ProjectionChange, registerProjection } from "../service.ts";
import {
  type AdmittedProjection,
  getSqlProjection,
  ownerOfTable,
  putSqlProjection,
  type SqlProjectionRow,
} from "./rows.ts";

export interface SqlDefinition {
  name: string;
  tableSql: string;
  eventHandlers: Readonly<Record<string, string>>;
  events: readonly string[];
  description: string;
}

export interface TableQuery {
  name: string;
  where: string;
  orderBy: string;
  limit: number | undefined;
  offset: number | undefined;
}

/** Projections whose tables the server folds by statements of their owners. */
export type SqlProjections = ReturnType<typeof openSqlProjections>;

export interface SqlProjectionsDeps extends Basics<"store" | "clock" | "ids"> {
  databases: EnvironmentDatabases;
  queries: Pick<Queries, "admitDefinition" | "isSameTable" | "readTable">;
  onChanged: (change: ProjectionChange) => void;
}

const namePattern = /^[a-z_][a-z0-9_-]*$/;

/** The table of a projection: a hyphen is no letter of a table's name. */
export function tableNameOf(name: string): string {
  if (!namePattern.test(name) || name.length > foldTableNameMax)
    throw invalid(
      "name",
      `must be lower case letters, digits, _ and -, begin with no digit and no -, and be at most ${foldTableNameMax} long`,
    );
  return `proj_${name.replaceAll("-", "_")}`;
}

export const foldTableOf = (key: GenerationKey, name: string): FoldTable => ({
  environmentId: key.environment_id,
  name,
  generation: key.generation,
});

/** Drops the table of a dropped generation. Its projection may be deleted already. */
export const dropTableOf = (
  databases: Pick<EnvironmentDatabases, "drop">,
  key: GenerationKey,
): Promise<void> => databases.drop(foldTableOf(key, tableNameOf(key.name)));

export function openSqlProjections(deps: SqlProjectionsDeps) {
  const { store, clock, ids, databases, queries, onChanged } = deps;

  async function rowOf(
    environmentId: string,
    definition: SqlDefinition,
    callerId: string,
  ): Promise<SqlProjectionRow> {
    const { name, tableSql, eventHandlers, description } = definition;
    const table = tableNameOf(name);
    const handlers = Object.entries(eventHandlers);
    if (handlers.length > handlersMax) throw invalid("event_handlers", `at most ${handlersMax}`);
    if (Buffer.byteLength(description) > descriptionBytesMax || !/^[^\0]*$/.test(description.toWellFormed()))
      throw invalid("description", `must be at most ${descriptionBytesMax} bytes without zero bytes`);
    const { columns, handlers: admitted } = await queries.admitDefinition(callerId, {
      ...{ table, tableSql, handlers },
    });
    const folded = {
      columns,
      handlers: admitted.map(({ text, parameters }) => ({ text, parameters })),
      sources: handlers.map(([event], at) => ({ event, paths: admitted[at]!.paths })),
    };
    const version = createHash("sha256").update(JSON.stringify(folded)).digest("hex").slice(0, 16);
    return {
      ...{ environment_id: environmentId, name, table_name: table, table_sql: tableSql },
      event_handlers: JSON.stringify(eventHandlers),
      description: description.toWellFormed(),
      admitted: JSON.stringify({ ...folded, version } satisfies AdmittedProjection),
    };
  }

  async function requireSame(session: Session, row: SqlProjectionRow): Promise<void> {
    const owner = await ownerOfTable(session, row);
    if (owner && owner.name !== row.name)
      throw new Fault("already_exists", `projection "${owner.name}" has table ${row.table_name} already`);
    const before = await getSqlProjection(session, row);
    const columns = (text: string) => (JSON.parse(text) as AdmittedProjection).columns;
    if (before && !queries.isSameTable(columns(before.admitted), columns(row.admitted)))
      throw new Fault(
        "already_exists",
        `table_sql: projection "${row.name}" has another table: delete it first, or choose another name`,
        { field: "table_sql" },
      );
  }

  return {
    /** The same again changes nothing; other handlers are taken over without a rebuild. */
    async create(
      environmentId: string,
      definition: SqlDefinition,
      callerId: string,
    ): Promise<{ name: string; status: ProjectionStatus }> {
      const row = await rowOf(environmentId, definition, callerId);
      const { name } = row;
      const events =
        definition.events.length === 0 ? Object.keys(definition.eventHandlers) : definition.events;
      const registered = definitionOf({ name, events });
      for (const event of Object.keys(definition.eventHandlers)) definitionOf({ name, events: [event] });
      const key: ProjectionKey = { environment_id: environmentId, name };
      const admitted = JSON.parse(row.admitted) as AdmittedProjection;
      // Tried before it is registered: what the database refuses was never there.
      const generation = 0;
      await databases.check(foldTableOf({ ...key, generation }, row.table_name), admitted);
      const { status } = await store.write(async (session) => {
        await requireSame(session, row);
        const done = await registerProjection(session, key, { ...registered, mode: "sql" }, clock.now());
        await putSqlProjection(session, row);
        await noteChange(session, key, "update", { actorId: callerId, ids, now: clock.now() });
        return done;
      });
      const found = (await getGenerations(store, key)).at(0);
      if (found) {
        const table = foldTableOf(found, row.table_name);
        await databases.ensure(table, admitted, found.cursor_position);
        if (status === "running") await databases.show(table);
      }
      onChanged({ key, kind: "other" });
      return { name, status };
    },

    async query(
      environmentId: string,
      { name, where, orderBy, limit, offset }: TableQuery,
      signal: AbortSignal,
    ): Promise<{ answer: QueryAnswer; totalCount: number }> {
      const key = { environment_id: environmentId, name };
      const row = await getSqlProjection(store, key);
      if (!row) {
        if (await getProjection(store, key))
          throw new Fault("failed_precondition", `projection "${name}" is not folded by SQL`);
        throw unknownProjection(name);
      }
      return queries.readTable(
        environmentId,
        row.table_name,
        { where, orderBy, limit: limit || foldRowsDefault, offset: offset ?? 0 },
        signal,
      );
    },
  };
}
