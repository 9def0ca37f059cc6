import type { Bus } from "../bus/bus.ts";
import type { ListChanges } from "../domain/realtime/pubsub/changes.ts";
import type { Frames } from "../domain/realtime/pubsub/frames.ts";
import type { IntegrityCheck } from "../domain/record/integrity/service.ts";
import type { FloorGuard } from "../domain/record/retention/service.ts";
import type { LoopOptions } from "../kit/loop.ts";
import type { Operation } from "../kit/operation.ts";
import type { DutyLoop } from "../nodes/duties.ts";
import type { Config } from "../settings/settings.ts";
import type { DatabaseTls } from "../store/postgres-client.ts";
import type { Primary } from "../store/postgres-primary.ts";
import type { Basics, Session } from "../store/store.ts";

/** What every part stands on. */
export interface Host extends Basics<"store" | "clock" | "ids" | "log" | "watch" | "nodeId"> {
  config: Config;
  /** How connections to the database besides the store's are made. */
  databaseTls?: DatabaseTls | undefined;
  /** Which server of PostgreSQL is written; undefined where the store is a file. */
  primary?: Primary | undefined;
  bus: Bus;
  /** Publishes what happens to subscribers here and at other nodes. */
  frames: Frames;
  /** Tells subscribers of lists that changed. */
  changes: ListChanges;
  /**
   * Locks the environment against deletion until the transaction ends; throws `not_found` when it is gone.
   * Every transaction that makes a row in an environment begins with it.
   */
  shareEnvironment(session: Session, environmentId: string): Promise<void>;
  /** False while this node is not sure of the time: it claims nothing then. */
  knowsTime(): boolean;
  isDraining(): boolean;
}

/**
 * What one part of the server offers. Every part is opened by a function of the host and of the parts below
 * it.
 */
export interface Part {
  operations: readonly Operation[];
  /** Run on every node. */
  loops?: readonly LoopOptions[];
  /** Run on one node for all. */
  duties?: readonly DutyLoop[];
  /** Invariants that loop `integrity.look` compares. */
  checks?: readonly IntegrityCheck[];
  /** Readers of the event log that retention must not overtake. */
  floorGuards?: readonly FloorGuard[];
  /** The server stops: answers held clients, and hands out nothing new. */
  drain?(): Promise<void>;
  /** The notice of the stop is over: sends away the clients that are still connected. */
  disconnect?(): Promise<void>;
  /** Resolves once no accepted write is on its way to the store any more. */
  settled?(): Promise<void>;
  /** Called once the loops stand still: writes what is left in memory. */
  close?(): Promise<void>;
}

/** What a part's opener answers: a part, and what other parts are handed of it. */
export type PartShape = Part & Record<string, unknown>;

export function foldParts(parts: readonly Part[]) {
  return {
    operations: parts.flatMap(({ operations }) => operations),
    loops: parts.flatMap(({ loops = [] }) => loops),
    duties: parts.flatMap(({ duties = [] }) => duties),
    checks: parts.flatMap(({ checks = [] }) => checks),
    floorGuards: parts.flatMap(({ floorGuards = [] }) => floorGuards),
    async drain() {
      await Promise.all(parts.map((part) => part.drain?.()));
    },
    async disconnect() {
      await Promise.all(parts.map((part) => part.disconnect?.()));
    },
    async settled() {
      await Promise.all(parts.map((part) => part.settled?.()));
    },
  };
}
