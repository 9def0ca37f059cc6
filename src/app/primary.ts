import { type LoopFacts, type LoopOptions, Waker } from "../kit/loop.ts";
import { watchPrimary } from "../nodes/primary.ts";
import { OldPrimary } from "../store/postgres-lineage.ts";
import { recordServer } from "../store/primary-record.ts";
import type { Store } from "../store/store.ts";
import type { Troubles } from "../store/troubles.ts";
import type { ServerHost } from "./host.ts";

/** Whether the database can be written, and what the log says of it. */
export const troubleLoop = (store: Pick<Store, "ping">, troubles: Troubles): LoopOptions => ({
  name: "store.watch",
  about:
    "Commits something small twice a second on PostgreSQL, and takes 128 kB of room on either store, for `/ready`, `/health` and the log.",
  everyMs: 250,
  async tick() {
    await store.ping().then(
      () => troubles.looked(undefined),
      (error: unknown) => troubles.looked(error),
    );
  },
});

/** Between looks at the other hosts while nothing can be written. */
const awayMs = 1_000;

/** Only where the store is PostgreSQL. */
export const primaryLoop: LoopFacts = {
  name: "store.primary",
  about:
    "Looks for a newer primary among the hosts of the database's URL, writes it down and tells the other nodes.",
  everyMs: 5_000,
};

/** This node's look at which server is the primary, where there is a choice. */
export function openPrimaryWatch({ primary, troubles, store, bus, clock, log, databaseTls }: ServerHost) {
  if (!primary) return { loops: [], askOthers: () => store.ping().catch(() => {}) };
  const watch = watchPrimary({
    ...{ lineage: primary.lineage, bus, clock, log },
    record: (server) => recordServer(store, server, clock.now()),
    lookAround: () => primary.lookAround(databaseTls),
  });
  const waker = new Waker();
  // A machine that vanished ends no connection: the other hosts are asked while this one is silent.
  troubles.onTurn((isAway) => isAway && waker.wake());
  const tick = async () => {
    await watch.lookOnce();
    return troubles.isAway() ? { againInMs: awayMs } : {};
  };
  return {
    loops: [{ ...primaryLoop, waker, tick }],
    /** Throws where this node must not begin; any other trouble is what `/ready` says first. */
    async askOthers() {
      await watch.askOthers();
      await store.ping().catch((error: unknown) => {
        if (error instanceof OldPrimary) throw error;
      });
    },
  };
}
