import { ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { PubSubService, type SubscriptionEvent } from "../../src/gen/svc/v1/pubsub_pb.ts";

export interface StreamSubscriber {
  /** What has come, in order. */
  readonly heard: SubscriptionEvent[];
  /** Of one opened `withStart`: whatever is emitted from then on comes. */
  hasBegun(): boolean;
  /** The error that ended it, once it is over; null for a good end. */
  over(): ConnectError | null | undefined;
  cut(): void;
}

/** `PubSubService.Subscribe` by hand. */
export function openSubscriber(
  transport: Transport,
  {
    key,
    pattern,
    replay = 0,
    group,
    withStart = false,
    headers = {},
  }: {
    key?: string;
    pattern: string;
    replay?: number;
    group?: string;
    withStart?: boolean;
    headers?: Record<string, string>;
  },
): StreamSubscriber {
  const heard: SubscriptionEvent[] = [];
  let hasBegun = false;
  const cut = new AbortController();
  let over: ConnectError | null | undefined;
  void (async () => {
    try {
      const sent = { ...headers, ...(key !== undefined && { authorization: `Bearer ${key}` }) };
      const asked = {
        pattern,
        options: { replay, withStart, ...(group !== undefined && { consumerGroup: group }) },
      };
      const told = createClient(PubSubService, transport).subscribe(asked, {
        headers: sent,
        signal: cut.signal,
      });
      for await (const event of told) {
        if (withStart && !hasBegun) hasBegun = true;
        else heard.push(event);
      }
      over = null;
    } catch (error) {
      over = ConnectError.from(error);
    }
  })();
  return { heard, hasBegun: () => hasBegun, over: () => over, cut: () => cut.abort() };
}
