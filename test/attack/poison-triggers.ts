import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import type { EngineName } from "../support/server.ts";

/** Tables that flushes write, when their triggers look, and which column a caller can fill. */
const watched = {
  events: { when: "INSERT", column: "data" },
  idempotency_keys: { when: "INSERT", column: "key" },
  debounces: { when: "INSERT", column: "debounce_key" },
  topic_messages: { when: "INSERT", column: "data" },
  runs: { when: "UPDATE", column: "output" },
  steps: { when: "INSERT", column: "output" },
  waits: { when: "INSERT", column: "expression" },
  invocations: { when: "INSERT", column: "function_id" },
  group_deliveries: { when: "DELETE", column: "consumer_id" },
  run_outputs: { when: "INSERT", column: "chunks" },
  kv_keys: { when: "INSERT", column: "key" },
} as const;
export type PoisonTable = keyof typeof watched;

/** A text that makes the engine refuse the row which holds it, in the table, with that error; it may stand anywhere. */
export const poisonOf = (table: PoisonTable, code: string): string => `poison-${table}-${code}-`;

/** What a value of one row can make a statement fail with, and errors that nobody foresaw. */
export const codesOf: Record<EngineName, readonly string[]> = {
  postgres: [
    ...["54000", "22P05", "22003", "23514", "22021", "22001", "22P02", "23502", "23503", "23505", "23P01"],
    ...["22023", "44000", "XX000", "P0001", "0A000", "42804"],
  ],
  libsql: ["ABORT", "FAIL", "ROLLBACK"],
};

/** An error that meets all alike, whatever raises it: the product must not look for a culprit, and so cannot find this one. */
export const sharedTrouble = "53100";

/** Makes the database refuse poisoned rows as engines refuse rows: in the statement, after all of our own checks. */
export async function poisonTables(store: Store): Promise<void> {
  const run = (text: string) => store.write((session) => session.run(sql.raw(text)));
  if (store.engine === "postgres")
    await run(`CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$
      DECLARE text TEXT; code TEXT;
      BEGIN
        IF TG_OP = 'DELETE' THEN text := to_jsonb(OLD) ->> TG_ARGV[0]; ELSE text := to_jsonb(NEW) ->> TG_ARGV[0]; END IF;
        code := substring(text FROM 'poison-' || TG_TABLE_NAME || '-([0-9A-Z]{5})-');
        IF code IS NOT NULL THEN RAISE EXCEPTION 'poisoned row' USING ERRCODE = code; END IF;
        IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
        RETURN NEW;
      END $$`);
  for (const [table, { when, column }] of Object.entries(watched)) {
    if (store.engine === "postgres") {
      await run(
        `CREATE TRIGGER poison BEFORE ${when} ON ${table} FOR EACH ROW EXECUTE FUNCTION poison('${column}')`,
      );
      continue;
    }
    const row = when === "DELETE" ? "old" : "new";
    for (const code of codesOf.libsql)
      await run(`CREATE TRIGGER poison_${table}_${code} BEFORE ${when} ON ${table}
        WHEN instr(${row}.${column}, 'poison-${table}-${code}-') > 0
        BEGIN SELECT RAISE(${code}, 'poisoned row'); END`);
  }
}
