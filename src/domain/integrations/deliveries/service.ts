import { Fault } from "../../../kit/fault.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import { pageOffset, pageSize } from "../../../kit/page.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import type { Past } from "../../log/core/past.ts";
import { type EndpointChange, openEndpoints } from "./endpoints.ts";
import * as letters from "./letter-rows.ts";
import { deadLetterKeptMs, stoppedKeepsMs } from "./limits.ts";
import { openDeliveryMeters } from "./meters.ts";
import * as rows from "./rows.ts";
import { openSend, type SendDeps } from "./sender.ts";
import { Senders } from "./senders.ts";

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
