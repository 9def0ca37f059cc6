import type { Bound, Sql } from "../kit/sql.ts";
import { type Connection, type Statement, toLibsqlTrouble } from "./libsql-drivers.ts";
import { libsqlSeams, renderLibsql } from "./libsql-text.ts";
import { afterLast, type Row, type Session, type SyncSession } from "./store.ts";

const preparedMax = 500;

/** Prepared statements of one connection; the one unused for longest makes room. */
export function statements(connection: Connection): (text: string) => Statement {
  const known = new Map<string, Statement>();
  return (text) => {
    let statement = known.get(text);
    if (statement) {
      if (known.size < preparedMax) return statement;
      known.delete(text);
    } else {
      statement = connection.prepare(text);
      if (known.size >= preparedMax) {
        const [oldest] = known.keys();
        known.get(oldest as string)?.close();
        known.delete(oldest as string);
      }
    }
    known.set(text, statement);
    return statement;
  };
}

export interface SoundSession extends SyncSession {
  /** Throws what a statement failed with, even if the caller went on: as on Postgres, it undoes the whole. */
  requireSound(): void;
}

export function syncSession(prepared: (text: string) => Statement, before?: () => void): SoundSession {
  let failed: { error: unknown } | undefined;
  const requireSound = () => {
    if (failed) throw failed.error;
  };
  const statement = <T>(query: Sql, execute: (statement: Statement, values: Bound[]) => T): T => {
    before?.();
    requireSound();
    try {
      const { text, values } = renderLibsql(query);
      return execute(prepared(text), values);
    } catch (error) {
      failed = { error: toLibsqlTrouble(error) };
      throw failed.error;
    }
  };
  return {
    seams: libsqlSeams,
    all: <R extends object = Row>(query: Sql) => statement(query, (s, values) => s.all(values)) as R[],
    one: <R extends object = Row>(query: Sql) =>
      statement(query, (s, values) => s.one(values)) as R | undefined,
    run: (query) => statement(query, (s, values) => s.run(values)),
    requireSound,
  };
}

/** For work that awaits its answers. Statements are calls of this process: two at once gain nothing. */
export function asyncSession(session: SyncSession): Session {
  let hadLast = false;
  const asked = (): SyncSession => {
    if (hadLast) throw new Error(afterLast);
    return session;
  };
  return {
    seams: session.seams,
    all: async (query) => asked().all(query),
    one: async (query) => asked().one(query),
    run: async (query) => asked().run(query),
    runAll: async (queries) => queries.map((query) => asked().run(query)),
    together: async (reads) => reads.map((query) => asked().all(query)),
    async last(query) {
      asked().run(query);
      hadLast = true;
    },
  };
}
