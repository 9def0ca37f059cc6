import type { Basics } from "../../../store/store.ts";
import { sendersMax, sendersOfEnvironmentMax } from "./limits.ts";
import * as rows from "./rows.ts";
import { leaseMsOf, SenderTurn, type TurnDeps } from "./turn.ts";

export interface SendersDeps extends Basics<"log" | "nodeId">, TurnDeps {
  /** False while this node is not sure of the time: it would believe a lease to be over too early. */
  knowsTime: () => boolean;
  /** Asks for the next look within this time. */
  lookIn: (ms: number) => void;
}

/** The endpoints that this node sends to now. */
export class Senders {
  readonly #deps: SendersDeps;
  readonly #underWay = new Map<string, { environmentId: string; turn: Promise<void> }>();
  readonly #stop = new AbortController();

  constructor(deps: SendersDeps) {
    this.#deps = deps;
  }

  readonly size = (): number => this.#underWay.size;

  /** The tick of loop `webhooks.deliver`: takes free endpoints with something to send. */
  async lookOnce(): Promise<void> {
    const { store, clock, knowsTime } = this.#deps;
    const free = sendersMax - this.#underWay.size;
    if (this.#stop.signal.aborted || free <= 0 || !knowsTime()) return;
    const now = clock.now();
    const due = await rows.dueEndpoints(store, now, { most: sendersMax, ofEach: sendersOfEnvironmentMax });
    let begun = 0;
    for (const key of due) {
      if (begun >= free || this.#stop.signal.aborted) break;
      if (this.#underWay.has(nameOf(key)) || this.#ofEnvironment(key) >= sendersOfEnvironmentMax) continue;
      if (await this.#begin(key)) begun++;
    }
  }

  /** Takes nothing more; resolves once no call is under way. */
  async drain(): Promise<void> {
    this.#stop.abort();
    await Promise.all([...this.#underWay.values()].map(({ turn }) => turn));
  }

  #ofEnvironment({ environment_id }: rows.EndpointKey): number {
    let count = 0;
    for (const { environmentId } of this.#underWay.values()) if (environmentId === environment_id) count++;
    return count;
  }

  async #begin(key: rows.EndpointKey): Promise<boolean> {
    const { store, clock, log, nodeId } = this.#deps;
    const now = clock.now();
    const claim = { holder: nodeId, now, until: now + leaseMsOf(this.#deps) };
    const row = await store.write((session) => rows.claimEndpoint(session, key, claim));
    if (!row) return false;
    const name = nameOf(key);
    const turn = SenderTurn.run(this.#deps, row, this.#stop.signal)
      .then((dueAt) => {
        if (dueAt !== undefined) this.#deps.lookIn(Math.max(0, dueAt - clock.now()));
      })
      // The endpoint stays this node's until its lease is over, so that a defect makes no busy loop.
      .catch((error) => log.warn("webhooks.turn_failed", { endpointId: row.id, error }))
      .finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, { environmentId: row.environment_id, turn });
    return true;
  }
}

const nameOf = ({ environment_id, id }: rows.EndpointKey): string => `${environment_id}\n${id}`;
