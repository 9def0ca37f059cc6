import type { Clock } from "../../../kit/clock.ts";
import { combine } from "../../../kit/combine.ts";
import { combineWaitingMax } from "../../../kit/flush-queue.ts";
import type { Store } from "../../../store/store.ts";
import { dedupKeptMs, lookupsMax } from "./limits.ts";
import * as rows from "./rows.ts";

/** Finds the accepted delivery that brought an id of a provider before. Requests of one moment ask together. */
export function openKnownDeliveries({ store, clock }: { store: Store; clock: Pick<Clock, "now"> }) {
  const since = () => clock.now() - dedupKeptMs;
  const asked = combine<rows.ExternalId, boolean>({
    ...{ name: "webhooks.known", lanes: 1, laneOf: () => 0, isOfItem: () => false },
    ...{ itemsMax: lookupsMax, waitingMax: combineWaitingMax },
    async flush(ids) {
      const known = await rows.whichAreKnown(store, ids, since());
      return ids.map((_, at) => ({ value: known.has(at + 1) }));
    },
  });
  return async (id: rows.ExternalId): Promise<rows.FirstDelivery | undefined> =>
    (await asked.submit(id)) ? rows.firstDelivery(store, id, since()) : undefined;
}
