import type { Instant } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import { integrityRowsMax, purgeSliceMax } from "../../../kit/limits.ts";
import { pageOffset, pageSize } from "../../../kit/page.ts";
import { sql } from "../../../kit/sql.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import type { Past } from "../../log/core/feed-reader.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import { type EndpointChange, openEndpoints } from "./endpoints.ts";
import * as letters from "./letter-rows.ts";
import { deadLetterKeptMs, sendersMax, sendersOfEnvironmentMax, stoppedKeepsMs } from "./limits.ts";
import { openDeliveryMeters } from "./meters.ts";
import * as rows from "./rows.ts";
import { openSend, type SendDeps } from "./sender.ts";
import { leaseMsOf, SenderTurn, type TurnDeps } from "./turn.ts";

export interface SendersDeps extends Basics<"log" | "nodeId">, TurnDeps {
  /** False while this node is not sure of the time: it would believe a lease to be over too early. */
  knowsTime: () => boolean;
  /** Asks for the next look within this time. */
  lookIn: (ms: number) => void;
}

/** The endpoints that this node sends to now. */
class Senders {
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

export type { ShownEndpoint } from "./endpoints.ts";
export type { LetterRow, ListedLetter } from "./letter-rows.ts";

export interface WebhookEndpointsDeps
  extends Basics<"store" | "clock" | "ids" | "log" | "metrics" | "nodeId">,
    Omit<SendDeps, "clock"> {
  knowsTime: () => boolean;
  /** Asks for the next look within this time. */
  lookIn: (ms: number) => void;
  keyring: Pick<Keyring, "seal" | "unseal" | "writeSealed">;
  past: Pick<Past, "head" | "at">;
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  announce: (change: EndpointChange) => void;
  graceMsDefault: number;
  /** The first pause between two tries, and how long an event is tried. */
  retryMs: number;
  triedMsMax: number;
}

const missingLetter = (eventId: string) =>
  new Fault("not_found", `dead letter ${eventId.slice(0, 255)} not found`);

/** Outbound webhooks: endpoints, the senders of this node, and dead letters. */
export function openDeliveries(deps: WebhookEndpointsDeps) {
  const { store, clock, past } = deps;
  const endpoints = openEndpoints(deps);
  const meters = openDeliveryMeters(deps, () => senders.size());
  const senders = new Senders({ ...deps, meters, send: openSend(deps) });

  const letterOf = (environmentId: string, endpointId: string, eventId: string) => ({
    ...{ environment_id: environmentId, endpoint_id: endpointId, event_id: eventId },
  });

  return {
    endpoints,
    deliverOnce: () => senders.lookOnce(),
    drain: () => senders.drain(),

    async deadLetters(
      environmentId: string,
      endpointId: string,
      page: { limit: number; offset: number },
    ): Promise<{ letters: letters.ListedLetter[]; totalCount: number }> {
      await endpoints.find(environmentId, endpointId);
      const key = { environment_id: environmentId, endpoint_id: endpointId };
      const size = { limit: pageSize(page.limit), offset: pageOffset(page.offset) };
      const [found, totalCount] = await Promise.all([
        letters.listLetters(store, key, size),
        letters.countLetters(store, key),
      ]);
      return { letters: found, totalCount };
    },

    /** The letter is sent again before what the log has next; it stays until the endpoint takes it. */
    async redeliver(environmentId: string, endpointId: string, eventId: string): Promise<letters.LetterRow> {
      await endpoints.find(environmentId, endpointId);
      const key = letterOf(environmentId, endpointId, eventId);
      const letter = await letters.getLetter(store, key);
      if (!letter) throw missingLetter(eventId);
      const [event] = await past.at(environmentId, [letter.position]);
      if (!event) throw new Fault("failed_precondition", "the event has expired: its payload is gone");
      const at = clock.now();
      if ((await store.write((session) => letters.setDue(session, key, at))) === 0)
        throw missingLetter(eventId);
      deps.announce({ environmentId, id: endpointId, change: "moved" });
      return { ...letter, due_at: at };
    },

    async discard(environmentId: string, endpointId: string, eventId: string): Promise<void> {
      await endpoints.find(environmentId, endpointId);
      const key = letterOf(environmentId, endpointId, eventId);
      if ((await store.write((session) => letters.deleteLetter(session, key))) === 0)
        throw missingLetter(eventId);
      deps.announce({ environmentId, id: endpointId, change: "moved" });
    },

    /** What retention must keep: the first position that an endpoint still needs. */
    leastUndelivered: (environmentId: string) =>
      rows.leastUndelivered(store, environmentId, clock.now() - stoppedKeepsMs),

    /** Part of the duty `retention`. */
    async forgetOnce(write: Store["write"]): Promise<void> {
      const now = clock.now();
      const before = now - deadLetterKeptMs;
      while (
        (await write((session) => letters.forgetLetters(session, before, purgeSliceMax))) === purgeSliceMax
      );
      while (
        (await write((session) => rows.dropExpiredSecrets(session, now, purgeSliceMax))) === purgeSliceMax
      );
    },
  };
}

export type WebhookEndpoints = ReturnType<typeof openDeliveries>;

/** A place beyond the end of the log would skip the events that are logged next. */
export const endpointsCheck = (store: Pick<Store, "all">): IntegrityCheck => ({
  name: "webhooks.position",
  about: "Endpoints of outbound webhooks whose position is beyond the end of the log.",
  run: async (environmentId) =>
    violationsOf(
      await store.all<{
        id: string;
        at: Instant;
      }>(sql`SELECT id, updated_at AS at, position FROM webhook_endpoints
        WHERE environment_id = ${environmentId} AND position >
          (SELECT COALESCE(max(h.position), 0) FROM heads h WHERE h.environment_id = ${environmentId})
        LIMIT ${integrityRowsMax}`),
    ),
});
