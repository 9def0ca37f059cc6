import { watchPrimary } from "../cluster/primary.ts";
import type { LoopFacts, LoopOptions } from "../kit/loop.ts";
import { recordServer } from "../store/primary-record.ts";
import type { Store } from "../store/store.ts";
import type { Troubles } from "../store/troubles.ts";
import type { ServerHost } from "./host.ts";

/** Whether the database can be written, and what the log says of it. */
export const troubleLoop = (store: Pick<Store, "ping">, troubles: Troubles): LoopOptions => ({
  name: "store.watch",
  about: "Commits something small twice a second on PostgreSQL, for `/ready`, `/health` and the log.",
  everyMs: 250,
  async tick() {
    await store.ping().then(
      () => troubles.looked(undefined),
      (error: unknown) => troubles.looked(error),
    );
  },
});

/** Only where the store is PostgreSQL. */
export const primaryLoop: LoopFacts = {
  name: "store.primary",
  about:
    "Looks for a newer primary among the hosts of the database's URL, writes it down and tells the other nodes.",
  everyMs: 5_000,
};

/** This node's look at which server is the primary, where there is a choice. */
export function openPrimaryWatch({ primary, store, bus, clock, log, databaseTls }: ServerHost) {
  if (!primary) return { loops: [], askOthers: async () => {} };
  const watch = watchPrimary({
    ...{ lineage: primary.lineage, bus, clock, log },
    record: (server) => recordServer(store, server, clock.now()),
    lookAround: () => primary.lookAround(databaseTls),
  });
  return { loops: [{ ...primaryLoop, tick: watch.lookOnce }], askOthers: watch.askOthers };
}
