import { purgeSliceMax } from "../../../kit/limits.ts";
import type { Session, Store } from "../../../store/store.ts";
import { droppedGenerations, forgetGeneration, type GenerationKey, serverHolder } from "./rows.ts";
import { deleteStates } from "./state-rows.ts";

export type DutyWrite = <T>(work: (session: Session) => Promise<T>) => Promise<T>;

const generationsAtOnce = 100;

/**
 * The tick of loop `projections.sweep`, on the node that leads `retention`: deletes the states of generations
 * that were dropped, a slice a transaction.
 */
export const openSweep =
  (store: Pick<Store, "all">, dropTable: (key: GenerationKey) => Promise<void>) =>
  async (write: DutyWrite): Promise<void> => {
    for (;;) {
      const dropped = await droppedGenerations(store, generationsAtOnce);
      for (const key of dropped) {
        let count = purgeSliceMax;
        while (count === purgeSliceMax)
          count = await write((session) => deleteStates(session, key, purgeSliceMax));
        if (key.holder?.startsWith(serverHolder)) await dropTable(key);
        await write((session) => forgetGeneration(session, key));
      }
      if (dropped.length < generationsAtOnce) return;
    }
  };
