import { type Static, Type } from "@sinclair/typebox";
import type { Clock, Instant } from "../kit/clock.ts";
import type { Presence } from "./bus.ts";

/** The only loop of the bus; the in-process bus has no loop. */
export const presenceLoop = {
  name: "bus.presence",
  about: "Tells the other nodes that this one lives, and forgets nodes that fell silent; only with NATS.",
  everyMs: 1_000,
} as const;

const forgottenMs = 5_000;

export const PresenceHeartbeat = Type.Object({
  nodeId: Type.String(),
  /** When the node sent it; older nodes leave it out. */
  at: Type.Optional(Type.Number()),
  facts: Type.Record(Type.String(), Type.Unknown()),
});
export type PresenceHeartbeat = Static<typeof PresenceHeartbeat>;

export interface PresencesOptions {
  clock: Clock;
  nodeId: string;
  /** Sent to the other nodes with every heartbeat. */
  facts: () => Record<string, unknown>;
  /** How late the heartbeat of another node came, in milliseconds. */
  onLag: (ms: number) => void;
}

/** The nodes whose heartbeats are recent. */
export class Presences {
  readonly #options: PresencesOptions;
  readonly #seen = new Map<string, Presence>();

  constructor(options: PresencesOptions) {
    this.#options = options;
  }

  /** This node's heartbeat, as text. */
  heartbeat(): string {
    const { nodeId, clock, facts } = this.#options;
    return JSON.stringify({ nodeId, at: clock.now(), facts: facts() } satisfies PresenceHeartbeat);
  }

  receive({ nodeId, at, facts }: PresenceHeartbeat): void {
    const seenAt: Instant = this.#options.clock.now();
    this.#seen.set(nodeId, { nodeId, facts, seenAt });
    // The clocks of nodes differ a little: a heartbeat that seems to come from the future has a lag of 0.
    if (at !== undefined && nodeId !== this.#options.nodeId) this.#options.onLag(Math.max(0, seenAt - at));
  }

  forgetSilent(): void {
    const before = this.#options.clock.now() - forgottenMs;
    for (const [id, { seenAt }] of this.#seen) if (seenAt < before) this.#seen.delete(id);
  }

  /** Sorted by id, this node included. */
  list(): Presence[] {
    const { nodeId, clock, facts } = this.#options;
    const all = new Map(this.#seen).set(nodeId, { nodeId, facts: facts(), seenAt: clock.now() });
    return [...all.values()].sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
  }
}
