import { Type } from "@sinclair/typebox";
import type { Bus } from "../bus/bus.ts";
import type { Basics } from "../store/store.ts";

const PrimaryMessage = Type.Object({
  system: Type.String(),
  database: Type.String(),
  timeline: Type.Integer({ minimum: 1 }),
});
type ToldPrimary = typeof PrimaryMessage.static;

/** The newest primary that a node knows of. */
interface KnownPrimary {
  readonly known: ToldPrimary | undefined;
  heard(server: ToldPrimary): void;
  onNewer(listener: (server: ToldPrimary) => void): void;
}

export interface PrimaryWatchDeps extends Basics<"clock" | "log"> {
  lineage: KnownPrimary;
  bus: Pick<Bus, "channel" | "requests" | "connected" | "onConnection">;
  /** Writes it into the database. */
  record(server: ToldPrimary): Promise<unknown>;
  /** Asks the hosts that are not in use. */
  lookAround(): Promise<void>;
}

/** A starting node's wait for the bus: without it events could be accepted on an old primary, and lost. */
const connectMs = 1_000;
/** The first answer is enough; where no other node is, the bus says so at once. */
const askMs = 2_000;
/** A node that lags is corrected at most so often. */
const correctMs = 1_000;

/**
 * Nodes send each other the newest primary: one that is connected to a stray old primary drops it, within a
 * message's time where the bus is up, and within a tick where its URL names the other host.
 */
export function watchPrimary({ lineage, bus, clock, log, record, lookAround }: PrimaryWatchDeps) {
  const told = bus.channel("store.primary", PrimaryMessage);
  const questions = bus.requests("store.primary.newest", Type.Object({}), PrimaryMessage);
  let recorded = lineage.known?.timeline;
  let toldAt = Number.NEGATIVE_INFINITY;

  const tell = () => {
    if (!lineage.known) return;
    toldAt = clock.elapsed();
    told.publish(lineage.known);
  };
  const recordOnce = async () => {
    const { known } = lineage;
    if (!known || known.timeline === recorded) return;
    await record(known);
    recorded = known.timeline;
  };

  lineage.onNewer((server) => {
    log.info("store.primary", { ...server });
    tell();
  });
  told.listen((server) => {
    lineage.heard(server);
    const { known } = lineage;
    const isBehind = known?.system === server.system && server.timeline < known.timeline;
    if (isBehind && clock.elapsed() - toldAt >= correctMs) tell();
  });
  bus.onConnection((connected) => {
    if (connected) tell();
  });

  /** Resolves with the connection, or after `connectMs` without one. */
  async function connection(): Promise<void> {
    if (bus.connected()) return;
    await new Promise<void>((resolve) => {
      let cancel = () => {};
      const unlisten = bus.onConnection((connected) => {
        if (connected) done();
      });
      const done = () => {
        cancel();
        unlisten();
        resolve();
      };
      cancel = clock.after(connectMs, done);
    });
  }

  return {
    /** Asked once, before this node listens: what the others know. */
    async askOthers() {
      await connection();
      // This node answers too, and the first answer is taken: it begins to when it has asked.
      const replies = await questions.askAll({}, { timeoutMs: askMs, repliesMax: 1 }).catch(() => []);
      for (const server of replies) lineage.heard(server);
      questions.answer(async () => {
        if (!lineage.known) throw new Error("no primary is known yet");
        return lineage.known;
      });
    },

    /** The tick of loop `store.primary`. */
    async lookOnce() {
      tell();
      await lookAround();
      await recordOnce();
    },
  };
}
