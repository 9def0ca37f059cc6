import type { Basics, Session } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import type { Events } from "../../engine/emit/service.ts";
import { openHeldSources } from "./held-sources.ts";
import { openIngest } from "./ingest/service.ts";
import { openKeptDeliveries } from "./kept-deliveries.ts";
import type { SourceChange } from "./source-changes.ts";
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
