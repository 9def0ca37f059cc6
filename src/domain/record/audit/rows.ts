import {
  type BoundedCount,
  type BoundedList,
  type BoundedPage,
  countLooked,
  lookThrough,
} from "../../../kit/bounded-look.ts";
import { inCamelCase } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { AuditHead, AuditRow } from "./rules.ts";

type AuditColumns = RowOf<"auth_audit">;

const fields = sql.raw(
  `org_id, sequence, id, at, event_type, operation, action, reads, environment_id, resource, allowed, rule, outcome,
   caller_kind, caller_id, roles, impersonated_org_id, request_id, payload, removed, key_id, hash`,
);

/** With its roles as they are stored: that text is what the hash covers. */
export type StoredRow = Omit<AuditRow, "roles"> & { roles: string };

const toRow = (row: AuditColumns): StoredRow => ({
  ...inCamelCase(row),
  ...{ reads: row.reads === 1, allowed: row.allowed === 1 },
});

export async function insertRows(session: Session, rows: readonly StoredRow[]): Promise<void> {
  const number = (value: boolean) => (value ? 1 : 0);
  const columns = {
    ...columnsOf(rows, {
      text: "orgId id eventType operation action environmentId resource rule outcome callerKind",
    }),
    ...columnsOf(rows, {
      text: "callerId roles impersonatedOrgId requestId payload removed keyId hash",
      bigint: "sequence at",
    }),
    reads: column.bigint(rows.map((r) => number(r.reads))),
    allowed: column.bigint(rows.map((r) => number(r.allowed))),
  };
  await session.run(sql`INSERT INTO auth_audit (${fields})
    SELECT ${fields} FROM ${session.seams.rowsFrom("r", columns)}`);
}

const headFields = sql.raw(
  "h.org_id, h.sequence, h.hash, h.floor_sequence, h.floor_hash, h.key_id, h.signature",
);

type AuditHeadColumns = RowOf<"auth_audit_heads">;

const toHead = (row: AuditHeadColumns): AuditHead => inCamelCase(row);

/**
 * Locks the heads in the order of the orgs until the transaction ends: one writer at a time appends to a
 * chain.
 */
export async function holdHeads(session: Session, orgIds: readonly string[]): Promise<AuditHead[]> {
  const ids = column.text([...orgIds].sort());
  const rows = await session.all<AuditHeadColumns>(sql`SELECT ${headFields} FROM auth_audit_heads h
    WHERE h.org_id ${session.seams.among(ids)} ORDER BY h.org_id ${session.seams.holdRow}`);
  return rows.map(toHead);
}

export async function headOf(reader: StoreReader, orgId: string): Promise<AuditHead | undefined> {
  const row = await reader.one<AuditHeadColumns>(
    sql`SELECT ${headFields} FROM auth_audit_heads h WHERE h.org_id = ${orgId}`,
  );
  return row && toHead(row);
}

/** Orgs with a chain, by id, after the one given. */
export const orgsAfter = async (reader: StoreReader, after: string, limit: number): Promise<string[]> =>
  (
    await reader.all<{ org_id: string }>(
      sql`SELECT org_id FROM auth_audit_heads WHERE org_id > ${after} ORDER BY org_id LIMIT ${limit}`,
    )
  ).map((row) => row.org_id);

/** Does not change heads that exist. */
export async function insertHeads(session: Session, heads: readonly AuditHead[]): Promise<void> {
  for (const head of heads)
    await session.run(sql`INSERT INTO auth_audit_heads
        (org_id, sequence, hash, floor_sequence, floor_hash, key_id, signature)
      VALUES (${head.orgId}, ${head.sequence}, ${head.hash}, ${head.floorSequence}, ${head.floorHash},
        ${head.keyId}, ${head.signature})
      ON CONFLICT (org_id) DO NOTHING`);
}

export async function updateHeads(session: Session, heads: readonly AuditHead[]): Promise<void> {
  for (const head of heads)
    await session.run(sql`UPDATE auth_audit_heads SET sequence = ${head.sequence}, hash = ${head.hash},
        floor_sequence = ${head.floorSequence}, floor_hash = ${head.floorHash}, key_id = ${head.keyId},
        signature = ${head.signature}
      WHERE org_id = ${head.orgId}`);
}

/** Which of these ids the org's chain already has, among rows of that time. */
export async function knownIds(
  reader: StoreReader,
  orgId: string,
  ids: readonly string[],
  from: Instant,
  to: Instant,
): Promise<Set<string>> {
  const rows = await reader.all<{ id: string }>(
    sql`SELECT id FROM auth_audit WHERE org_id = ${orgId} AND at >= ${from} AND at <= ${to}`,
  );
  const wanted = new Set(ids);
  return new Set(rows.flatMap(({ id }) => (wanted.has(id) ? id : [])));
}

/** In the order of the chain, after the sequence given. */
export const rowsAfter = async (
  reader: StoreReader,
  orgId: string,
  sequence: number,
  limit: number,
): Promise<StoredRow[]> =>
  (
    await reader.all<AuditColumns>(
      sql`SELECT ${fields} FROM auth_audit WHERE org_id = ${orgId} AND sequence > ${sequence}
        ORDER BY sequence LIMIT ${limit}`,
    )
  ).map(toRow);

export const deleteUpTo = (session: Session, orgId: string, sequence: number): Promise<number> =>
  session.run(sql`DELETE FROM auth_audit WHERE org_id = ${orgId} AND sequence <= ${sequence}`);

export interface AuditQuery {
  orgId: string;
  /** The key or user that called. */
  callerId?: string;
  action?: string;
  eventTypes?: readonly string[];
  environmentId?: string;
  /** Both inclusive. */
  from?: Instant;
  to?: Instant;
  before?: { at: Instant; sequence: number };
  limit: number;
}

export interface AuditPlace {
  at: number;
  sequence: number;
}

/** By the index of times, or of a caller's times. It has neither actions nor environments. */
function listOf(query: AuditQuery): BoundedList {
  const { callerId, action, eventTypes, environmentId, from, to, before } = query;
  return {
    columns: sql.raw("org_id, at, sequence, action, operation, event_type, environment_id"),
    from: sql.raw("auth_audit"),
    served: [
      sql`org_id = ${query.orgId}`,
      ...(callerId === undefined ? [] : [sql`caller_id = ${callerId}`]),
      ...(from === undefined ? [] : [sql`at >= ${from}`]),
      ...(to === undefined ? [] : [sql`at <= ${to}`]),
      ...(before ? [sql`(at, sequence) < (${sql.bigint(before.at)}, ${sql.bigint(before.sequence)})`] : []),
    ],
    asked: [
      ...(action === undefined ? [] : [sql`(action = ${action} OR operation = ${action})`]),
      ...(eventTypes === undefined ? [] : [sql`event_type IN ${sql.list(eventTypes)}`]),
      ...(environmentId === undefined ? [] : [sql`environment_id = ${environmentId}`]),
    ],
    order: sql.raw("at DESC, sequence DESC"),
  };
}

/** Newest first; a filter that no index serves is asked of so many rows only. */
export async function listRows(
  reader: StoreReader,
  query: AuditQuery,
): Promise<BoundedPage<StoredRow, AuditPlace>> {
  const list = listOf(query);
  if (list.asked.length === 0) {
    const page = await lookThrough<AuditColumns>(reader, { ...list, columns: fields }, query);
    return { ...page, found: page.found.map(toRow), end: undefined };
  }
  const page = await lookThrough<AuditPlace>(reader, list, query);
  const sequences = page.found.map(({ sequence }) => sequence);
  const rows = await reader.all<AuditColumns>(sql`SELECT ${fields} FROM auth_audit
    WHERE org_id = ${query.orgId} AND sequence IN ${sql.list(sequences)} ORDER BY at DESC, sequence DESC`);
  return { ...page, found: rows.map(toRow) };
}

export const countRows = (reader: StoreReader, { before: _, ...query }: AuditQuery): Promise<BoundedCount> =>
  countLooked(reader, listOf(query));

export async function lastRow(reader: StoreReader, orgId: string): Promise<StoredRow | undefined> {
  const row = await reader.one<AuditColumns>(
    sql`SELECT ${fields} FROM auth_audit WHERE org_id = ${orgId} ORDER BY sequence DESC LIMIT 1`,
  );
  return row && toRow(row);
}
