import type { Instant } from "../../../kit/clock.ts";
import { integrityRowsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import type { Events } from "../../engine/emit/service.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import { openIngest } from "./ingest/service.ts";
import { openKeptDeliveries } from "./kept-deliveries.ts";
import { deliveriesCheckedMax } from "./limits.ts";
import { openHeldSources, type SourceChange } from "./source-changes.ts";
import { openSources } from "./sources.ts";
import { openTrial } from "./trial.ts";

export type { Received } from "./ingest/service.ts";
export type { DeliveryRow } from "./kept-deliveries.ts";

export interface WebhooksDeps extends Basics<"store" | "clock" | "ids" | "log" | "metrics"> {
  keyring: Pick<Keyring, "seal" | "unseal" | "writeSealed">;
  events: Pick<Events, "emit">;
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  graceMsDefault: number;
  /** How long deliveries are kept. */
  keptMs: number;
  /** Requests a second that one source takes at this node; 0 for any number. */
  perSecond: number;
  /** Called after the commit, for subscribers of frames. */
  announce: (change: SourceChange) => void;
}

/** Inbound webhooks: sources, the ingest, and what came. */
export function openWebhooks(deps: WebhooksDeps) {
  const held = openHeldSources(deps);
  const sources = openSources({
    ...deps,
    onChanged(change) {
      held.forget(change.id);
      deps.announce(change);
    },
  });
  const deliveries = openKeptDeliveries(deps);
  return {
    sources,
    deliveries,
    ingest: openIngest({ ...deps, held }),
    trial: openTrial({ ...deps, sources }),
    flow: deliveries.flow,
    /** Seals all secrets again, in the transaction that rotates the master key. */
    reseal: sources.reseal,
    /** Part of the duty `retention`. */
    forgetOnce: deliveries.forgetOnce,
  };
}

export type Webhooks = ReturnType<typeof openWebhooks>;

/**
 * An event is logged after its delivery came: one whose delivery is younger than the oldest event of the log
 * has not expired. A repeat names the event of its first, which may have.
 */
export const deliveriesCheck = (store: Pick<Store, "all">): IntegrityCheck => ({
  name: "webhooks.deliveries",
  about: `Accepted deliveries without their event, among the newest ${deliveriesCheckedMax} deliveries.`,
  run: async (environmentId) =>
    violationsOf(
      await store.all<{
        id: string;
        at: Instant;
      }>(sql`SELECT d.id, d.created_at AS at, d.event_id AS event FROM (
          SELECT id, created_at, event_id, status, is_repeat FROM webhook_deliveries
          WHERE environment_id = ${environmentId} ORDER BY created_at DESC, id DESC LIMIT ${deliveriesCheckedMax}) d
        WHERE d.status = 'accepted' AND d.is_repeat = 0
          AND d.created_at > (SELECT v.at FROM events v WHERE v.environment_id = ${environmentId}
            ORDER BY v.position LIMIT 1)
          AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = d.event_id AND e.environment_id = ${environmentId})
        LIMIT ${integrityRowsMax}`),
    ),
});
