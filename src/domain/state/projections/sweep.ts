import type { Clock } from "../../../kit/clock.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import type { Session, Store } from "../../../store/store.ts";
import { historyMs } from "./limits.ts";
import {
  type DroppedGeneration,
  droppedGenerations,
  forgetGeneration,
  type GenerationKey,
  type HeldProjection,
  holdProjection,
  serverHolder,
  updateProjection,
} from "./rows.ts";
import { deleteHistory, deleteStates, forgetHistory } from "./state-rows.ts";

export type DutyWrite = <T>(work: (session: Session) => Promise<T>) => Promise<T>;

const generationsAtOnce = 100;
/** In one tick, for generations of environments where one failed; the next tick continues after the last. */
const laterMsMax = 60_000;

const placeOf = (key: GenerationKey): string =>
  JSON.stringify([key.environment_id, key.name, key.generation]);

/** Each slice begins after the last row of the one before. From the start, undeletable ones would recur. */
async function* walk(store: Pick<Store, "all">): AsyncGenerator<DroppedGeneration> {
  let last: DroppedGeneration | undefined;
  for (;;) {
    const slice = await droppedGenerations(store, last, generationsAtOnce);
    yield* slice;
    last = slice.at(-1);
    if (slice.length < generationsAtOnce) return;
  }
}

/**
 * The tick of loop `projections.sweep`, on the node that leads `retention`: deletes the states of generations
 * that were dropped, and history that is too old, a slice a transaction. Throws at its end what failed, when
 * all others are gone.
 */
export const openSweep =
  (
    { store, clock }: { store: Pick<Store, "all">; clock: Pick<Clock, "now" | "elapsed"> },
    dropTable: (key: GenerationKey) => Promise<void>,
    lastLater = "",
  ) =>
  async (write: DutyWrite): Promise<void> => {
    const all = async (some: (session: Session) => Promise<number>) => {
      while ((await write(some)) === purgeSliceMax);
    };
    await all((session) => forgetHistory(session, clock.now() - historyMs, purgeSliceMax));

    const troubles: unknown[] = [];
    const turn = async (key: DroppedGeneration): Promise<boolean> => {
      try {
        await all((session) => deleteStates(session, key, purgeSliceMax));
        await all((session) => deleteHistory(session, key, purgeSliceMax));
        if (key.holder?.startsWith(serverHolder)) await dropTable(key);
        await write((session) => forgetGeneration(session, key));
        return true;
      } catch (error) {
        // A node that leads no more, or has no database, ends the tick here: all others would fail, too.
        await write(async () => {});
        troubles.push(error);
        return false;
      }
    };
    const failedIn = new Set<string>();
    const later: DroppedGeneration[] = [];
    for await (const key of walk(store)) {
      if (failedIn.has(key.environment_id)) later.push(key);
      else if (!(await turn(key))) failedIn.add(key.environment_id);
    }
    // Each table of an environment whose seat is taken waits in vain: others do not wait this long for that.
    const until = clock.elapsed() + laterMsMax;
    const isBehind = (key: DroppedGeneration) => placeOf(key) > lastLater;
    for (const key of [...later.filter(isBehind), ...later.filter((one) => !isBehind(one))]) {
      if (clock.elapsed() >= until) break;
      await turn(key);
      lastLater = placeOf(key);
    }
    if (troubles.length > 0)
      throw new AggregateError(troubles, "some dropped generations of projections could not be deleted");
  };

/** Events that a projection still needs have expired: it stops, and says so. */
export async function stopBelowFloor(
  { store, clock }: { store: Store; clock: Clock },
  held: HeldProjection,
  floor: number,
): Promise<void> {
  const message = `events below position ${floor} have expired before they were folded: rebuild the projection`;
  if (held.error_message === message) return;
  await store.write(async (session) => {
    const now = await holdProjection(session, held);
    if (!now || now.generation !== held.generation) return;
    const stopped = { status: "error", error_message: message, updated_at: clock.now() } as const;
    await updateProjection(session, { ...now, ...stopped });
  });
}
