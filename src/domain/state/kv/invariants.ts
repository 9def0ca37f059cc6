import type { Instant } from "../../../kit/clock.ts";
import { integrityEnvironmentsMax, integrityRowsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/row.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

type CheckReads = Pick<Store, "all">;

/** Buckets compared in one look, and rows read of each; of a larger one nothing is said. */
const bucketsAtOnce = 10;
const rowsEachMax = integrityRowsMax / 2;

interface CountedBucket extends RowOf<"kv_buckets", "id, name, value_count, bytes, revision"> {
  at: Instant;
  is_wrong: number;
}

/** The order lets every planner go by the primary key, and no further than the limit. */
const compare = (store: CheckReads, environmentId: string, after: string): Promise<CountedBucket[]> =>
  store.all(sql`SELECT b.id, b.name, b.created_at AS at, b.value_count, b.bytes, b.revision, CASE WHEN b.value_count <= ${rowsEachMax} AND EXISTS (SELECT 1 FROM (
        SELECT count(*) AS row_count, count(CASE WHEN l.operation = 'put' THEN 1 END) AS value_count,
          COALESCE(sum(l.bytes), 0) AS bytes, COALESCE(max(l.revision), 0) AS revision
        FROM (SELECT e.operation, e.bytes, e.revision FROM kv_keys e
          WHERE e.environment_id = b.environment_id AND e.bucket_id = b.id
          ORDER BY e.key LIMIT ${rowsEachMax + 1}) l) c
      WHERE c.row_count <= ${rowsEachMax}
        AND (c.value_count <> b.value_count OR c.bytes <> b.bytes OR c.revision > b.revision))
      THEN 1 ELSE 0 END AS is_wrong
    FROM kv_buckets b WHERE b.environment_id = ${environmentId} AND b.id > ${after} AND b.deleted_at IS NULL
    ORDER BY b.id LIMIT ${bucketsAtOnce}`);

/** It is reported, never repaired: a count that is wrong says that rows are. */
export function bucketCheck(store: CheckReads): IntegrityCheck {
  /** The bucket that the last look came to, by environment. */
  const walks = new Map<string, string>();
  return {
    name: "kv.buckets",
    about:
      "Buckets whose values are not as many as they count, or newer than their revision; of ten buckets a look.",
    async run(environmentId) {
      const walked = walks.get(environmentId) ?? "";
      walks.delete(environmentId);
      let buckets = await compare(store, environmentId, walked);
      if (buckets.length === 0 && walked !== "") buckets = await compare(store, environmentId, "");
      const wrong = buckets.filter(({ is_wrong }) => is_wrong === 1);
      if (walks.size >= integrityEnvironmentsMax) walks.delete(walks.keys().next().value!);
      // It stays where something is wrong, so that this is seen until it is put right.
      const last = wrong.length > 0 ? walked : buckets.length < bucketsAtOnce ? "" : buckets.at(-1)!.id;
      if (last !== "") walks.set(environmentId, last);
      return violationsOf(
        wrong.map(({ name, at, value_count, bytes, revision }) => ({
          ...{ id: `bucket ${name}`, at, values: value_count, bytes, revision },
        })),
      );
    },
  };
}
