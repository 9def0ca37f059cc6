import type { Instant } from "../../../kit/clock.ts";
import { integrityEnvironmentsMax, integrityRowsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { StoreReader } from "../../../store/store.ts";
import { headViolations, type Violations, violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

interface TopicHeadCheck {
  position: number;
  retention_floor: number;
  at: Instant;
  last: number | null;
}

const well: Violations = { count: 0, oldest: null };

const lastOf = (environmentId: string) =>
  sql`(SELECT max(l.position) FROM topic_messages l WHERE l.environment_id = ${environmentId})`;

/** The end of the log by its head, and by its last message; undefined in an environment without a publish. */
const headToCheck = (store: StoreReader, environmentId: string): Promise<TopicHeadCheck | undefined> =>
  store.one(sql`SELECT h.position, h.retention_floor, h.last_at AS at, ${lastOf(environmentId)} AS last
    FROM topic_heads h WHERE h.environment_id = ${environmentId}`);

/**
 * Messages of a slice. The range has a beginning and no end: libSQL compares each row with the end of a range
 * whole, payload included, and ten thousand large messages held the loop for seconds.
 */
const slice = (environmentId: string, from: number) => sql`(SELECT s.environment_id, s.position, s.at
  FROM topic_messages s WHERE (s.environment_id, s.position) >= (${environmentId}, ${from})
  ORDER BY s.environment_id, s.position LIMIT ${integrityRowsMax})`;

/** Messages `m` of a slice that must be there, by the floor of the same look. */
const kept = (environmentId: string, from: number) => sql`m.environment_id = ${environmentId}
  AND m.position < ${from + integrityRowsMax} AND m.position >= h.retention_floor`;

/** The positions from `first` on that are not there; each is as old as the message after it. */
function gapsOf(
  there: readonly { position: number | null; at: Instant }[],
  { first, count, end }: { first: number; count: number; end: Instant },
): { id: string; at: Instant }[] {
  const gaps: { id: string; at: Instant }[] = [];
  let next = 0;
  for (let position = first; position < first + count; position++)
    if (there[next]?.position === position) next++;
    else gaps.push({ id: `position ${position}`, at: there[next]?.at ?? end });
  return gaps;
}

/**
 * Positions missing in a slice, up to its last message. What is missing after that, the check of the head
 * finds.
 */
async function gapsFrom(store: StoreReader, environmentId: string, from: number): Promise<Violations> {
  const wantedOf = (ends: { last: number | null; floor: number }) => {
    const first = Math.max(from, ends.floor, 1);
    return { first, count: Math.min(ends.last ?? 0, from + integrityRowsMax - 1) - first + 1 };
  };
  const counted = await store.one<{ last: number | null; floor: number; count: number }>(
    sql`SELECT ${lastOf(environmentId)} AS last, h.retention_floor AS floor,
        (SELECT count(*) FROM ${slice(environmentId, from)} m WHERE ${kept(environmentId, from)}) AS count
      FROM topic_heads h WHERE h.environment_id = ${environmentId}`,
  );
  if (!counted || counted.count >= wantedOf(counted).count) return well;
  // Looked at again, for its names; the log may have moved.
  const rows = await store.all<{ last: number | null; floor: number; position: number | null; at: Instant }>(
    sql`SELECT ${lastOf(environmentId)} AS last, h.retention_floor AS floor, m.position, COALESCE(m.at, h.last_at) AS at
      FROM topic_heads h LEFT JOIN ${slice(environmentId, from)} m ON ${kept(environmentId, from)}
      WHERE h.environment_id = ${environmentId} ORDER BY m.position`,
  );
  const [ends] = rows;
  if (!ends) return well;
  const { first, count } = wantedOf(ends);
  const there = rows.filter(({ position }) => position !== null);
  const missing = Math.max(0, count - there.length);
  if (missing === 0) return well;
  return violationsOf(gapsOf(there, { first, count, end: ends.at }));
}

/**
 * The invariants of the log of topics. Both are reported, never repaired: only a backup has what is missing.
 */
export function topicChecks(store: StoreReader): IntegrityCheck[] {
  /** How far the walk through older slices has come, by environment. */
  const walks = new Map<string, number>();
  return [
    {
      name: "topics.head",
      about: "Messages that the end of the log of topics does not count, or counts without having them.",
      async run(environmentId) {
        const ends = await headToCheck(store, environmentId);
        if (!ends) return well;
        // When everything has expired there is no last message, and the floor is above the head.
        const last = ends.last ?? Math.min(ends.position, Math.max(0, ends.retention_floor - 1));
        return headViolations({ ...ends, last });
      },
    },
    {
      name: "topics.gaps",
      about:
        "Positions without a message in the log of topics: among the newest, and of the rest another slice each time.",
      async run(environmentId) {
        const ends = await headToCheck(store, environmentId);
        if (!ends) return well;
        const oldest = Math.max(1, ends.retention_floor);
        const newest = Math.max(oldest, (ends.last ?? 0) - integrityRowsMax + 1);
        const found = await gapsFrom(store, environmentId, newest);
        if (found.count > 0 || newest === oldest) return found;
        const walked = walks.get(environmentId) ?? oldest;
        const from = walked < oldest || walked >= newest ? oldest : walked;
        const older = await gapsFrom(store, environmentId, from);
        walks.delete(environmentId);
        if (walks.size >= integrityEnvironmentsMax) walks.delete(walks.keys().next().value!);
        // It stays where something is missing, so that this is seen until it is put right.
        walks.set(environmentId, older.count > 0 ? from : from + integrityRowsMax);
        return older;
      },
    },
  ];
}
