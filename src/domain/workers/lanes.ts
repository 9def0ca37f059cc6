import type { Desk, Desks } from "./desks.ts";
import type { Job } from "./job.ts";

/** A worker that asks this node for jobs. */
export interface Asking {
  environmentId: string;
  workerId: string;
  functionIds: readonly string[];
  /** Free slots; never handed more. */
  available: number;
  /** How long to wait for a first job; 0 looks once. */
  holdMs: number;
  /** The request brought reports: its sender asks again right after the answer, whatever it holds. */
  reports: boolean;
  /** The worker went away. */
  signal: AbortSignal;
}

export interface Waiter extends Asking {
  desk: Desk;
  lanes: Lane[];
  jobs: Job[];
  /** Slots that are promised to a claim or a birth under way. */
  pending: number;
  /** Claims that looked while it waited. */
  looks: number;
  /** Takes no further promise: it is being answered. */
  closed: boolean;
  answered: boolean;
  settle: () => void;
}

export interface Lane {
  environmentId: string;
  functionId: string;
  /** May hold queued runs that nobody here has tried to claim. */
  dirty: boolean;
  /** Rows before this are taken; see LaneDemand.since. */
  since: number;
  /** When the lane was last looked at from its very start. */
  wholeAt: number;
  lookedAt: number;
  /** Runs to ask for in the next claim; grows while claims come back full. */
  ask: number;
  waiters: Set<Waiter>;
  /** Desks of workers that are on their way back. */
  away: Set<Desk>;
}

/** A slot of a claim: where its run goes. */
export interface Slot {
  /** Undefined for a worker on its way back. */
  waiter: Waiter | undefined;
  desk: Desk;
  token: string;
  hash: string;
}

/** Every run asked for costs a token: a claim begins with so many, and doubles while there are more. */
export const askMin = 16;

export const newLane = (environmentId: string, functionId: string): Lane => ({
  environmentId,
  functionId,
  dirty: true,
  since: 0,
  wholeAt: 0,
  lookedAt: 0,
  ask: askMin,
  waiters: new Set(),
  away: new Set(),
});

/** A worker that was answered a moment ago and will ask again: runs may wait for it at its desk. */
export function expectedAt(lane: Lane, desks: Desks): Desk | undefined {
  for (const desk of lane.away) {
    if (desks.expects(desk)) return desk;
    lane.away.delete(desk);
  }
  return undefined;
}
