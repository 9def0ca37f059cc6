import { ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { PubSubService, type SubscriptionEvent } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { until } from "./until.ts";

export interface TestMember {
  consumerId: string;
  got: SubscriptionEvent[];
  /** Numbers in `data.n`, in order of arrival. */
  numbers(): number[];
  wait(count: number): Promise<SubscriptionEvent[]>;
  /** Why the stream ended; undefined after `leave`. */
  over: Promise<ConnectError | undefined>;
  leave(): Promise<void>;
}

export const pubsubClient = (url: string, key: string) =>
  createClient(
    PubSubService,
    createConnectTransport({
      baseUrl: url,
      interceptors: [
        (next) => (request) => {
          request.header.set("authorization", `Bearer ${key}`);
          return next(request);
        },
      ],
    }),
  );

/** A member of a consumer group, over its stream; `onEvent` is awaited before the next is taken. */
export function joinGroup(
  { url, key }: { url: string; key: string },
  group: { namespace?: string; groupName: string; consumerId?: string },
  onEvent: (event: SubscriptionEvent) => void | Promise<void> = () => {},
): TestMember {
  const leave = new AbortController();
  const got: SubscriptionEvent[] = [];
  const { namespace = "", groupName, consumerId = "" } = group;
  const request = { namespace, groupName, consumerId };
  const over = (async () => {
    for await (const event of pubsubClient(url, key).joinConsumerGroup(request, { signal: leave.signal })) {
      // A stream that ends before its first message brings an empty one (proto/README.md).
      if (event.topic === "") continue;
      got.push(event);
      await onEvent(event);
    }
  })().then(
    () => undefined,
    (error) => (leave.signal.aborted ? undefined : ConnectError.from(error)),
  );
  return {
    consumerId,
    got,
    numbers: () => got.map((event) => (event.data as { n: number }).n),
    wait: (count) =>
      until(() => got.length >= count && got, {
        about: `${count} deliveries to ${consumerId} of ${groupName}`,
        everyMs: 5,
      }),
    over,
    async leave() {
      leave.abort();
      await over;
    },
  };
}
