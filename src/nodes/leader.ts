import type { Hold } from "../bus/bus.ts";
import { columnsOf } from "../kit/columns.ts";
import { nameKeptMs } from "../kit/limits.ts";
import { sql } from "../kit/sql.ts";
import type { Basics, Session, Store } from "../store/store.ts";
import { clockUncertaintyMsMax } from "./time-base.ts";

/** Which node does the duties that only one may do at a time. */
export type Leadership = ReturnType<typeof leadership>;

export interface LeaderRow {
  duty: string;
  epoch: number;
  node_id: string;
  lease_until: number;
}

export interface LeadershipDeps extends Basics<"store" | "clock" | "log" | "nodeId"> {
  bus: { hold(name: string): Promise<Hold>; release(name: string): Promise<void> };
  duties: readonly string[];
  uncertaintyMs: () => number;
}

interface LeadershipTerm {
  epoch: number;
  /** Of `clock.elapsed()`: from then on another node may lead. */
  until: number;
}

const leaseMs = nameKeptMs;

/**
 * The bus elects, the row decides. The node that has the name on the bus takes the duty's row lease as soon
 * as it is free, and raises the epoch. While the bus is away the holder keeps its row as long as the store
 * answers; others take it when it lapses. `writeAsLeader` reads the epoch in the transaction of the write, so
 * of two nodes that both take themselves for the leader only one can write.
 */
export function leadership(deps: LeadershipDeps) {
  const { store, bus, clock, log, nodeId, duties } = deps;
  const terms = new Map<string, LeadershipTerm>();
  let resigned = false;

  const nameOf = (duty: string) => `duty.${duty}`;

  /** Answers the duties whose leases go on. */
  async function renewFree(held: readonly string[]): Promise<ReadonlySet<string>> {
    if (held.length === 0) return new Set();
    const askedAt = clock.elapsed();
    const own = held.map((duty) => ({ duty, epoch: terms.get(duty)!.epoch }));
    const kept = await store.write((session) =>
      prolongFree(session, { nodeId, own, until: clock.now() + leaseMs }),
    );
    for (const { duty, epoch } of kept) terms.set(duty, { epoch, until: askedAt + leaseMs });
    return new Set(kept.map(({ duty }) => duty));
  }

  async function renew(duty: string, { epoch }: LeadershipTerm): Promise<boolean> {
    const askedAt = clock.elapsed();
    const kept = await store.write((session) =>
      session.run(sql`UPDATE leaders SET lease_until = ${clock.now() + leaseMs}
        WHERE duty = ${duty} AND node_id = ${nodeId} AND epoch = ${epoch}`),
    );
    if (kept === 1) terms.set(duty, { epoch, until: askedAt + leaseMs });
    return kept === 1;
  }

  async function claim(duty: string): Promise<void> {
    const askedAt = clock.elapsed();
    const now = clock.now();
    const row = await store.write((session) =>
      session.one<{ epoch: number }>(sql`INSERT INTO leaders (duty, epoch, node_id, lease_until)
        VALUES (${duty}, 1, ${nodeId}, ${now + leaseMs})
        ON CONFLICT (duty) DO UPDATE SET epoch = leaders.epoch + 1, node_id = excluded.node_id,
          lease_until = excluded.lease_until
        WHERE leaders.lease_until <= ${now} RETURNING epoch`),
    );
    if (!row) return;
    terms.set(duty, { epoch: row.epoch, until: askedAt + leaseMs });
    log.info("cluster.leads", { duty, epoch: row.epoch });
  }

  async function leave(duty: string): Promise<void> {
    const reign = terms.get(duty);
    if (!reign) return;
    terms.delete(duty);
    await store.write((session) =>
      // From now on, not 0: for how long nobody leads is read from it.
      session.run(sql`UPDATE leaders SET lease_until = ${clock.now()}
        WHERE duty = ${duty} AND node_id = ${nodeId} AND epoch = ${reign.epoch}`),
    );
    log.info("cluster.leads_no_more", { duty, epoch: reign.epoch });
  }

  /** Whether this node stands for the duty; if not, it gives it up. */
  async function stands(duty: string): Promise<boolean> {
    const isSure = deps.uncertaintyMs() <= clockUncertaintyMsMax;
    const vote = isSure ? await bus.hold(nameOf(duty)) : "theirs";
    if (resigned) return false;
    if (vote === "theirs") await leave(duty);
    return vote !== "theirs";
  }

  async function keepOrClaim(duty: string): Promise<void> {
    const reign = terms.get(duty);
    if (reign && (await renew(duty, reign))) return;
    if (reign) {
      terms.delete(duty);
      log.warn("cluster.lost_lead", { duty, epoch: reign.epoch });
    }
    await claim(duty);
  }

  return {
    /**
     * The epoch under which this node leads the duty; undefined when it does not, or is not sure any more.
     */
    epochOf(duty: string): number | undefined {
      const reign = terms.get(duty);
      return reign && clock.elapsed() < reign.until ? reign.epoch : undefined;
    },

    /** The tick of loop `cluster.lead`: stands for every duty, keeps what this node leads. */
    async campaignOnce() {
      if (resigned) return;
      const votes = await Promise.allSettled(duties.map(stands));
      const standing = duties.filter((_, at) => votes[at]!.status === "fulfilled" && votes[at]!.value);
      const kept = await renewFree(standing.filter((duty) => terms.has(duty)));
      const rest = standing.filter((duty) => !kept.has(duty));
      const failed = [...votes, ...(await Promise.allSettled(rest.map(keepOrClaim)))].find(
        (result) => result.status === "rejected",
      );
      if (failed) throw failed.reason;
    },

    /** Gives every duty up at once; this node does not stand again. */
    async resign() {
      resigned = true;
      await Promise.all(
        duties.map(async (duty) => {
          await leave(duty).catch((error: unknown) => log.debug("cluster.resign_failed", { duty, error }));
          await bus.release(nameOf(duty));
        }),
      );
    },

    /** Who led each duty last, and until when its lease runs. */
    leaders: () =>
      store.all<LeaderRow>(sql`SELECT duty, epoch, node_id, lease_until FROM leaders ORDER BY duty`),
  };
}

/**
 * Prolongs these leases in one statement, and answers which. A row that a write of its leader holds is left
 * out: the others must not wait for it.
 */
const prolongFree = (
  { seams, all }: Session,
  { nodeId, own, until }: { nodeId: string; own: readonly { duty: string; epoch: number }[]; until: number },
): Promise<{ duty: string; epoch: number }[]> =>
  all(sql`UPDATE leaders SET lease_until = ${until}
    WHERE duty IN (SELECT l.duty FROM leaders l WHERE l.node_id = ${nodeId}
      AND (l.duty, l.epoch) IN (SELECT i.duty, i.epoch FROM ${seams.rowsFrom("i", {
        ...columnsOf(own, { text: "duty", bigint: "epoch" }),
      })}) ${seams.skipLocked})
    RETURNING duty, epoch`);

/** Thrown when a leader that was deposed meanwhile tries to write; nothing is written. */
export class Deposed extends Error {
  constructor(duty: string, epoch: number) {
    super(`another node leads ${duty} since epoch ${epoch}`);
    this.name = "Deposed";
  }
}

/** A transaction of a leader: the epoch is checked in it, and cannot be raised before it has ended. */
export const writeAsLeader = <T>(
  store: Store,
  duty: string,
  epoch: number,
  work: (session: Session) => Promise<T>,
): Promise<T> =>
  store.write(async (session) => {
    const row = await session.one<{ epoch: number }>(
      sql`SELECT epoch FROM leaders WHERE duty = ${duty} ${session.seams.shareRow}`,
    );
    if (row?.epoch !== epoch) throw new Deposed(duty, epoch);
    return work(session);
  });
