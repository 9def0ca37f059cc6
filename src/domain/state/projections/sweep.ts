import type { Clock } from "../../../kit/clock.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import type { Session, Store } from "../../../store/store.ts";
import { deleteHistory, forgetHistory } from "./history.ts";
import { historyMs } from "./limits.ts";
import { droppedGenerations, forgetGeneration, type GenerationKey, serverHolder } from "./rows.ts";
import { deleteStates } from "./state-rows.ts";

export type DutyWrite = <T>(work: (session: Session) => Promise<T>) => Promise<T>;

const generationsAtOnce = 100;

/**
 * The tick of loop `projections.sweep`, on the node that leads `retention`: deletes the states of generations
 * that were dropped, and history that is too old, a slice a transaction.
 */
export const openSweep =
  (
    { store, clock }: { store: Pick<Store, "all">; clock: Pick<Clock, "now"> },
    dropTable: (key: GenerationKey) => Promise<void>,
  ) =>
  async (write: DutyWrite): Promise<void> => {
    const all = async (some: (session: Session) => Promise<number>) => {
      while ((await write(some)) === purgeSliceMax);
    };
    await all((session) => forgetHistory(session, clock.now() - historyMs, purgeSliceMax));
    for (;;) {
      const dropped = await droppedGenerations(store, generationsAtOnce);
      for (const key of dropped) {
        await all((session) => deleteStates(session, key, purgeSliceMax));
        await all((session) => deleteHistory(session, key, purgeSliceMax));
        if (key.holder?.startsWith(serverHolder)) await dropTable(key);
        await write((session) => forgetGeneration(session, key));
      }
      if (dropped.length < generationsAtOnce) return;
    }
  };
