import { createProjectionOf } from "../projections/projection.ts";
import type { EventRegistry } from "../steps/events.ts";
import { withUnits } from "../wire/duration.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { safe } from "../wire/retry.ts";
import {
  type ConnectionOptions,
  consistent,
  createTransport,
  knownConnection,
  type Transport,
} from "../wire/transport.ts";
import type { EventMap } from "../wire/types.ts";
import { configCalls, secretCalls } from "./client-config.ts";
import { eventCalls } from "./client-events.ts";
import { functionCalls } from "./client-functions.ts";
import { groupCalls, subscribeCalls } from "./client-groups.ts";
import { kvCalls } from "./client-kv.ts";
import { projectionCalls } from "./client-projections.ts";
import { causalityCalls, repairCalls } from "./client-repairs.ts";
import { runWordCalls } from "./client-run-words.ts";
import { errorCalls, runCalls } from "./client-runs.ts";
import { schemaCalls } from "./client-schemas.ts";
import { sqlCalls } from "./client-sql.ts";
import { streamCalls } from "./client-streams.ts";
import type { Client } from "./client-types.ts";
import { alertCalls, webhookCalls } from "./client-webhooks.ts";
import { toolCalls } from "./tools.ts";

export type { Client } from "./client-types.ts";

export interface ClientOptions<Events extends EventMap = EventMap> extends ConnectionOptions {
  /** The result of `defineEvents`: it types the events, and checks their data before they are emitted. */
  events?: EventRegistry<Events>;
}

export const knownOfClient: KnownOptions<ClientOptions> = { ...knownConnection, events: true };

/**
 * A client of one server and environment. Costs nothing until its first call; needs no closing. Throws
 * TypeError on an option that does not exist, and for what is no duration.
 */
export function createClient<Events extends EventMap = EventMap>(
  options: ClientOptions<Events> = {},
): Client<Events> {
  requireKnown("createClient", options, knownOfClient);
  const given = withUnits("createClient", options, knownOfClient, { endless: true });
  return clientOf(createTransport(given), options.events);
}

function clientOf<Events extends EventMap>(
  transport: Transport,
  events: EventRegistry<Events> | undefined,
): Client<Events> {
  const subscriptions = subscribeCalls<Events>(transport);
  return {
    transport,
    ...eventCalls(transport, events),
    ...functionCalls(transport, events),
    ...runCalls(transport),
    ...subscriptions,
    createProjection: createProjectionOf(events),
    config: configCalls(transport),
    groups: groupCalls(transport),
    kv: kvCalls(transport),
    projections: projectionCalls(transport, subscriptions.subscribe as never),
    alerts: alertCalls(transport),
    causality: causalityCalls(transport),
    errors: errorCalls(transport),
    repairs: repairCalls(transport),
    runs: runWordCalls(transport),
    schemas: schemaCalls(transport, events),
    secrets: secretCalls(transport),
    ...sqlCalls(transport),
    streams: streamCalls(transport, events),
    tools: toolCalls(transport),
    webhooks: webhookCalls(transport),
    sequence: () => transport.last.text,
    consistent({ after } = {}) {
      if (after !== undefined && !transport.last.note(after))
        throw new TypeError("after must be a sequence as a client's sequence() answers it");
      return clientOf(consistent(transport), events);
    },
    health: () => transport.call({ method: "GET", path: "/health" }, safe),
    info: () => transport.rpc("SvcService/Info", {}, safe),
  };
}
