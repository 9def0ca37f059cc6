import type { Pooled } from "./pool.ts";
import { NotWritable } from "./store.ts";

/** Which server of PostgreSQL it is, and of which promotion: each raises the timeline. */
export interface PrimaryServer {
  system: string;
  database: string;
  timeline: number;
}

/** What it acknowledges is lost. */
export class OldPrimary extends NotWritable {
  constructor(timeline: number, known: number) {
    super("the database is an old primary", `timeline ${timeline}, a primary of timeline ${known} is known`);
  }
}

/**
 * The newest primary that this node knows of. A connection to an older one is refused, and dropped as soon as
 * a newer one is known: what an old primary acknowledges after the promotion is lost.
 */
export class Lineage {
  #known: PrimaryServer | undefined;
  readonly #admitted = new Map<Pooled, number>();
  readonly #listeners: ((server: PrimaryServer) => void)[] = [];

  get known(): PrimaryServer | undefined {
    return this.#known;
  }

  /** Called with each primary that is newer than those before, the first included. */
  onNewer(listener: (server: PrimaryServer) => void): void {
    this.#listeners.push(listener);
  }

  /** Throws unless the server is the newest that is known; its connection is dropped when that changes. */
  admit(client: Pooled, server: PrimaryServer): void {
    this.require(server);
    if (!this.#known || server.timeline > this.#known.timeline) this.#raise(server);
    for (const one of this.#admitted.keys()) if (!one.usable()) this.#admitted.delete(one);
    this.#admitted.set(client, server.timeline);
  }

  require(server: PrimaryServer): void {
    const known = this.#known;
    if (!known) return;
    if (server.system !== known.system)
      throw new NotWritable(
        "the database is on another server than before",
        `system identifier ${server.system}, before ${known.system}`,
      );
    if (server.timeline < known.timeline) throw new OldPrimary(server.timeline, known.timeline);
  }

  /** From the store or from another node. Of another server it says nothing here. */
  heard(server: PrimaryServer): void {
    const known = this.#known;
    if (known && (known.system !== server.system || known.database !== server.database)) return;
    if (!known || server.timeline > known.timeline) this.#raise(server);
  }

  #raise(server: PrimaryServer): void {
    this.#known = server;
    for (const [client, timeline] of this.#admitted) {
      if (timeline >= server.timeline) continue;
      this.#admitted.delete(client);
      client.destroy(new OldPrimary(timeline, server.timeline));
    }
    for (const listener of this.#listeners) listener(server);
  }
}
