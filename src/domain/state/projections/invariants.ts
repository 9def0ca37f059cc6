import type { Instant } from "../../../kit/clock.ts";
import { integrityEnvironmentsMax, integrityRowsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

/** Partitions and projections that one look compares. */
const statesAtOnce = 500;
const projectionsAtOnce = 50;

type StoreReads = Pick<Store, "all">;

/** What the server can know of folds that runners make. */
export const projectionChecks = (store: StoreReads): IntegrityCheck[] => [
  cursorCheck(store),
  unsavedCheck(store),
  statesCheck(store),
];

/** A cursor beyond the end of its log would skip the events that are logged next. */
const cursorCheck = (store: StoreReads): IntegrityCheck => ({
  name: "projections.cursor",
  about:
    "Projections whose cursor is beyond the end of the log or beyond what was delivered, or that have no generation to read.",
  run: async (environmentId) =>
    violationsOf(
      await store.all<{
        id: string;
        at: Instant;
      }>(sql`SELECT name AS id, max(updated_at) AS at, max(cursor_position) AS "cursor",
          max(position) AS position, max(last) AS head FROM (
          SELECT p.name, p.updated_at, p.generation AS reads, g.generation, g.cursor_position, g.position, g.delivered,
            g.offered, (SELECT h.position FROM heads h WHERE h.environment_id = ${environmentId}) AS last
          FROM projections p LEFT JOIN projection_generations g ON g.environment_id = p.environment_id
            AND g.name = p.name AND g.dropped_at IS NULL
          WHERE p.environment_id = ${environmentId} ORDER BY p.name LIMIT ${integrityRowsMax}) looked
        GROUP BY name HAVING max(CASE WHEN generation = reads THEN 1 ELSE 0 END) = 0
          OR max(CASE WHEN cursor_position < 0 OR position > COALESCE(last, 0) OR offered > COALESCE(last, 0)
            OR cursor_position > position OR cursor_position > delivered THEN 1 ELSE 0 END) = 1`),
    ),
});

interface ProjectionLook {
  id: string;
  at: Instant;
  isBroken: number;
}

/** Where the next look continues, by environment; it stays where something is broken until that is mended. */
class Walks<Place> {
  readonly #places = new Map<string, Place>();

  after = (environmentId: string): Place | undefined => this.#places.get(environmentId);

  note(
    environmentId: string,
    after: Place | undefined,
    next: Place | undefined,
    looks: readonly ProjectionLook[],
  ) {
    const broken = looks.filter(({ isBroken }) => Number(isBroken) === 1);
    this.#places.delete(environmentId);
    if (this.#places.size >= integrityEnvironmentsMax) this.#places.delete(this.#places.keys().next().value!);
    const place = broken.length > 0 ? after : next;
    if (place !== undefined) this.#places.set(environmentId, place);
    return violationsOf(broken.map(({ isBroken, ...row }) => row));
  }
}

/** Events that are delivered and not saved, below the cursor: they are lost when the runner dies. */
function unsavedCheck(store: StoreReads): IntegrityCheck {
  const walks = new Walks<string>();
  return {
    name: "projections.unsaved",
    about: `Projections whose cursor is beyond events that are not saved: another ${projectionsAtOnce} each time.`,
    async run(environmentId) {
      const after = walks.after(environmentId);
      const looks = await store.all<ProjectionLook>(sql`SELECT p.name AS id, p.updated_at AS at,
          CASE WHEN EXISTS (SELECT 1 FROM projection_generations g JOIN projection_pending q
            ON q.environment_id = g.environment_id AND q.name = g.name AND q.generation = g.generation
          WHERE g.environment_id = p.environment_id AND g.name = p.name AND q.first_position <= g.cursor_position)
            THEN 1 ELSE 0 END AS "isBroken"
        FROM (SELECT environment_id, name, updated_at FROM projections WHERE environment_id = ${environmentId}
          AND name > ${after ?? ""} ORDER BY name LIMIT ${projectionsAtOnce}) p ORDER BY p.name`);
      const next = looks.length === projectionsAtOnce ? looks.at(-1)!.id : undefined;
      return walks.note(environmentId, after, next, looks);
    },
  };
}

/** A partition of a fold; an empty key stands before all of them. */
interface StatePlace {
  name: string;
  generation: number;
  partition: string;
}

/** The first fold after one that has states; each statement is one look into the index. */
async function foldBehind(
  store: StoreReads,
  environmentId: string,
  { name, generation }: Omit<StatePlace, "partition">,
): Promise<StatePlace | undefined> {
  const ofEnvironment = sql`SELECT name, generation, '' AS partition FROM projection_states
    WHERE environment_id = ${environmentId}`;
  const [next] = await store.all<StatePlace>(sql`${ofEnvironment} AND name = ${name}
    AND generation > ${sql.bigint(generation)} ORDER BY generation LIMIT 1`);
  if (next) return next;
  const [other] = await store.all<StatePlace>(sql`${ofEnvironment} AND name > ${name}
    ORDER BY name, generation LIMIT 1`);
  return other;
}

/** Finds states without a generation, which no loop deletes, and ones past the log's end, hiding events. */
function statesCheck(store: StoreReads): IntegrityCheck {
  const walks = new Walks<StatePlace>();
  return {
    name: "projections.states",
    about: `States of partitions that no fold has, or folded beyond the end of the log: another ${statesAtOnce} each time.`,
    async run(environmentId) {
      const start = { name: "", generation: 0 };
      const after = walks.after(environmentId) ?? (await foldBehind(store, environmentId, start));
      if (!after) return walks.note(environmentId, undefined, undefined, []);
      const { name, generation, partition } = after;
      const looks = await store.all<ProjectionLook & { partition: string }>(sql`SELECT o.name AS id,
          o.updated_at AS at, o.partition_key AS partition,
          CASE WHEN g.generation IS NULL OR o.last_position > COALESCE(
            (SELECT h.position FROM heads h WHERE h.environment_id = ${environmentId}), 0) THEN 1 ELSE 0 END AS "isBroken"
        FROM (SELECT name, generation, partition_key, last_position, updated_at FROM projection_states
          WHERE environment_id = ${environmentId} AND name = ${name} AND generation = ${sql.bigint(generation)}
            AND partition_key > ${partition} ORDER BY partition_key LIMIT ${statesAtOnce}) o
        LEFT JOIN projection_generations g ON g.environment_id = ${environmentId} AND g.name = o.name
          AND g.generation = o.generation ORDER BY o.partition_key`);
      const isWhole = looks.length < statesAtOnce;
      const next = isWhole
        ? await foldBehind(store, environmentId, after)
        : { ...after, partition: looks.at(-1)!.partition };
      return walks.note(environmentId, after, next, looks);
    },
  };
}
