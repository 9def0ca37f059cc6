import type { CelProgram } from "../../../kit/cel/cel.ts";
import type { Clock } from "../../../kit/clock.ts";
import type { CallOutward } from "../../../kit/outward-call.ts";
import { TransportFailure } from "../../../kit/outward-call.ts";
import { type Tracer, traceIn, traceparentOf } from "../../../kit/trace.ts";
import type { Breakers } from "../../engine/breakers/service.ts";
import type { LoggedEvent } from "../../log/core/service.ts";
import type { TopicDelivery } from "../../realtime/pubsub/delivery.ts";
import {
  matchesTokens,
  type Pattern,
  parsePattern,
  readFilter,
  tokensOf,
} from "../../realtime/pubsub/rules.ts";
import type { EndpointRow, NamedEvent } from "./rows.ts";
import { bodyOf, type CallOutcome, headersOf, outcomeOf, ownEntities } from "./rules.ts";

/** What an endpoint wants, ready to be compared. */
export interface Wanted {
  pattern: Pattern;
  filter: CelProgram | undefined;
}

export const wantedBy = ({ pattern, filter }: Pick<EndpointRow, "pattern" | "filter">): Wanted => ({
  pattern: parsePattern(pattern),
  filter: readFilter(filter),
});

/** Whether an event may be the endpoint's, by its name and its entity alone. */
export function isNamed({ pattern }: Wanted, event: NamedEvent): boolean {
  const { name, entity_id, entity_type } = event;
  if (entity_id?.startsWith(ownEntities)) return false;
  if (pattern.namespace === "events") return matchesTokens(pattern.tokens, tokensOf(`events:${name}`));
  if (entity_id === null || entity_type === null) return false;
  return matchesTokens(pattern.tokens, tokensOf(`entity:${entity_type}.${entity_id}.${name}`));
}

export interface SendDeps {
  clock: Clock;
  call: CallOutward;
  breakers: Breakers;
  timeoutMs: number;
  tracer: Pick<Tracer, "start" | "on">;
  /** An event on its topics, as subscribers match it. */
  deliveriesOf: (event: LoggedEvent) => TopicDelivery[];
}

/** The breaker of the endpoint is open: nothing was sent. */
export interface Spared {
  kind: "spared";
}

/** Sends single events to endpoints. */
export function openSend(deps: SendDeps) {
  const { clock, call, breakers, timeoutMs, deliveriesOf, tracer } = deps;

  /** The delivery is a span of the event's trace; an event without one begins none. */
  async function traced(
    row: EndpointRow,
    event: LoggedEvent,
    secrets: readonly string[],
  ): Promise<CallOutcome> {
    const trace = traceIn(event.metadata);
    if (!trace || !tracer.on) return post(row.url, event, secrets, trace && traceparentOf(trace));
    const span = tracer.start("webhook delivery", "client", traceparentOf(trace));
    span.set("svc.environment_id", row.environment_id);
    let failed: string | undefined = "failed";
    try {
      const outcome = await post(row.url, event, secrets, span.traceparent);
      failed = outcome.kind === "delivered" ? undefined : outcome.kind;
      return outcome;
    } finally {
      span.end(failed);
    }
  }

  async function post(
    url: string,
    event: LoggedEvent,
    secrets: readonly string[],
    traceparent: string | undefined,
  ): Promise<CallOutcome> {
    const body = bodyOf(event);
    const headers = {
      ...headersOf(event.id, body, secrets, clock.now()),
      ...(traceparent !== undefined && { traceparent }),
    };
    try {
      return await call({ url, body, headers, timeoutMs }, async (response) => {
        // The body of the answer is not read: it may be endless.
        await response.body?.cancel();
        return outcomeOf(response, clock.now());
      });
    } catch (error) {
      if (!(error instanceof TransportFailure)) throw error;
      return { kind: "failed", error: error.message, retryAfterMs: undefined };
    }
  }

  return {
    /** Whether the event passes the endpoint's filter; a filter that fails on it does not hold. */
    passes({ pattern, filter }: Wanted, event: LoggedEvent): boolean {
      if (!filter) return true;
      return deliveriesOf(event).some(
        ({ delivery, tokens }) => matchesTokens(pattern.tokens, tokens) && delivery.passes(filter),
      );
    },

    async send(
      row: EndpointRow,
      event: LoggedEvent,
      secrets: readonly string[],
    ): Promise<CallOutcome | Spared> {
      const endpoint = {
        environmentId: row.environment_id,
        functionId: row.id,
        endpointUrl: row.url,
      };
      if ((await breakers.admits(endpoint)) === "open") return { kind: "spared" };
      const begunAt = clock.now();
      const outcome = await traced(row, event, secrets);
      // An endpoint that is gone answers: its breaker stays closed, and it is disabled.
      if (outcome.kind === "failed") await breakers.failed(endpoint);
      else await breakers.succeeded(endpoint, begunAt);
      return outcome;
    },
  };
}

export type SendEvent = ReturnType<typeof openSend>;
