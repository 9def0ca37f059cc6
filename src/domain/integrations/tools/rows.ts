import type { Instant } from "../../../kit/clock.ts";
import { type Sql, sql } from "../../../kit/sql.ts";
import type { Session, StoreReader } from "../../../store/store.ts";

export interface AgentKey {
  environment_id: string;
  name: string;
}

export interface AgentRow extends AgentKey {
  callback_url: string;
  /** The secret that signs its calls. */
  sealed: string;
  registered_at: Instant;
}

export interface ToolRow {
  qualified_name: string;
  agent_name: string;
  description: string;
  /** A JSON Schema as text, or empty. */
  input_schema: string;
  /** Actions, with commas between them. */
  required_scopes: string;
  /** 0 takes the default. */
  timeout_ms: number;
}

const toolColumns = `qualified_name, agent_name, description, input_schema, required_scopes, timeout_ms`;
const toolFields = sql.raw(toolColumns);
const prefixedFields = sql.raw(toolColumns.replace(/(\w+)/g, "t.$1"));

const its = ({ environment_id, name }: AgentKey): Sql =>
  sql`environment_id = ${environment_id} AND name = ${name}`;

/** Its row stays locked: of two registrations at once the second replaces all of the first. */
export const putAgent = (session: Session, row: AgentRow): Promise<number> =>
  session.run(sql`INSERT INTO agents (environment_id, name, callback_url, sealed, registered_at)
    VALUES (${row.environment_id}, ${row.name}, ${row.callback_url}, ${row.sealed}, ${row.registered_at})
    ON CONFLICT (environment_id, name) DO UPDATE SET callback_url = excluded.callback_url,
      sealed = excluded.sealed, registered_at = excluded.registered_at`);

export const deleteAgent = (session: Session, key: AgentKey): Promise<number> =>
  session.run(sql`DELETE FROM agents WHERE ${its(key)}`);

export const deleteTools = (session: Session, { environment_id, name }: AgentKey): Promise<number> =>
  session.run(sql`DELETE FROM agent_tools WHERE environment_id = ${environment_id} AND agent_name = ${name}`);

/** How many were written: names that tools of other agents have are left out. Given in order of names. */
export const insertTools = (
  session: Session,
  environmentId: string,
  tools: readonly ToolRow[],
): Promise<number> =>
  session.run(sql`INSERT INTO agent_tools (environment_id, ${toolFields}, bytes)
    VALUES ${sql.join(
      tools.map(
        (
          row,
        ) => sql`(${environmentId}, ${row.qualified_name}, ${row.agent_name}, ${row.description}, ${row.input_schema},
          ${row.required_scopes}, ${row.timeout_ms}, ${Buffer.byteLength(row.input_schema + row.description)})`,
      ),
      ", ",
    )} ON CONFLICT (environment_id, qualified_name) DO NOTHING`);

/** One of these names that is a tool of another agent. */
export const takenName = (
  session: Session,
  { environment_id, name }: AgentKey,
  names: readonly string[],
): Promise<Pick<ToolRow, "qualified_name" | "agent_name"> | undefined> =>
  session.one(sql`SELECT qualified_name, agent_name FROM agent_tools
    WHERE environment_id = ${environment_id} AND agent_name <> ${name} AND qualified_name IN ${sql.list(names)}
    ORDER BY qualified_name LIMIT 1`);

export async function totalsOf(
  session: Session,
  environmentId: string,
): Promise<{ agents: number; tools: number; bytes: number }> {
  const row = await session.one<{ agents: number; tools: number; bytes: number }>(sql`SELECT
      (SELECT count(*) FROM agents WHERE environment_id = ${environmentId}) AS agents,
      count(*) AS tools, CAST(COALESCE(sum(bytes), 0) AS BIGINT) AS bytes
    FROM agent_tools WHERE environment_id = ${environmentId}`);
  return row!;
}

/** A tool with what calling it takes. */
export type CallableRow = ToolRow & Pick<AgentRow, "callback_url" | "sealed">;

export const findTool = (
  reader: StoreReader,
  environmentId: string,
  name: string,
): Promise<CallableRow | undefined> =>
  reader.one(sql`SELECT ${prefixedFields}, a.callback_url, a.sealed FROM agent_tools t
    JOIN agents a ON a.environment_id = t.environment_id AND a.name = t.agent_name
    WHERE t.environment_id = ${environmentId} AND t.qualified_name = ${name}`);

/** By name, after `after`. */
export const listTools = (
  reader: StoreReader,
  environmentId: string,
  { after, limit }: { after: string; limit: number },
): Promise<ToolRow[]> =>
  reader.all(sql`SELECT ${toolFields} FROM agent_tools
    WHERE environment_id = ${environmentId} AND qualified_name > ${after} ORDER BY qualified_name LIMIT ${limit}`);

/** Of the whole installation, for a new master key. */
export const sealedAgents = (reader: StoreReader): Promise<(AgentKey & Pick<AgentRow, "sealed">)[]> =>
  reader.all(sql`SELECT environment_id, name, sealed FROM agents ORDER BY environment_id, name`);

export const resealAgent = (session: Session, row: AgentKey & Pick<AgentRow, "sealed">): Promise<number> =>
  session.run(sql`UPDATE agents SET sealed = ${row.sealed} WHERE ${its(row)}`);
