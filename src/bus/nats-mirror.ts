import {
  DiscardPolicy,
  JetStreamApiError,
  type JetStreamClient,
  jetstream,
  jetstreamManager,
  RetentionPolicy,
  StorageType,
} from "@nats-io/jetstream";
import { errors, headers, type NatsConnection } from "@nats-io/transport-node";
import type { Log } from "../kit/log.ts";
import { BusError, isSubject, type Mirror, type Mirrored } from "./bus.ts";

/** JetStream answers within this. */
const mirrorAnswerMs = 5_000;
/** JetStream keeps the messages of the mirror for this long, and knows their ids again for the second. */
const mirrorKeptMs = 7 * 24 * 60 * 60 * 1000;
const mirrorRepeatMs = 10 * 60 * 1000;

export interface NatsMirrorOptions {
  /** Undefined while the server cannot be reached. */
  connection: () => NatsConnection | undefined;
  /** In front of every subject: `svc.mirror.`. */
  prefix: string;
  /** `svc_mirror`: letters, digits, `_` and `-`. */
  stream: string;
  log: Log;
}

/** JetStream's error codes for a message that is larger than the stream takes, and for a missing stream. */
const tooLarge = 10_054;
const noStream = 10_059;
/** Bytes that the protocol adds around our headers. */
const headBytes = 64;

const nanos = (ms: number) => ms * 1_000_000;
const encoder = new TextEncoder();

/** A stream of JetStream. A stream that an operator made before, with other limits, is used as it is. */
export function natsMirror({ connection, prefix, stream, log }: NatsMirrorOptions): Mirror {
  let opened: { from: NatsConnection; made: Promise<void> } | undefined;

  async function make(current: NatsConnection): Promise<void> {
    const manager = await jetstreamManager(current, { timeout: mirrorAnswerMs });
    try {
      await manager.streams.info(stream);
      return;
    } catch (error) {
      if (!(error instanceof JetStreamApiError) || error.code !== noStream) throw error;
    }
    const wanted = {
      name: stream,
      subjects: [`${prefix}>`],
      retention: RetentionPolicy.Limits,
      discard: DiscardPolicy.Old,
      storage: StorageType.File,
      max_age: nanos(mirrorKeptMs),
      duplicate_window: nanos(mirrorRepeatMs),
    };
    // Waits for a cluster to have three reachable servers: a stream made with fewer copies would keep fewer.
    await manager.streams.add({ ...wanted, num_replicas: current.info?.cluster ? 3 : 1 });
    log.info("bus.mirror_made", { stream });
  }

  const ready = (current: NatsConnection): Promise<void> => {
    if (opened?.from !== current) opened = { from: current, made: make(current) };
    return opened.made;
  };

  async function publishOne(
    client: JetStreamClient,
    most: number,
    { subject, id, payload, headers: extraHeaders }: Mirrored,
  ): Promise<BusError | undefined> {
    if (!isSubject(subject)) return new BusError("refused", `${subject} is no subject`);
    const bytes = encoder.encode(payload);
    const head = headers();
    let size = bytes.length + Buffer.byteLength(id) + headBytes;
    for (const [name, value] of Object.entries(extraHeaders)) {
      head.set(name, value);
      size += Buffer.byteLength(`${name}: ${value}\r\n`);
    }
    if (size > most)
      return new BusError("refused", `the message has ${bytes.length} bytes, the bus takes ${most}`);
    try {
      await client.publish(prefix + subject, bytes, { msgID: id, headers: head });
      return undefined;
    } catch (error) {
      const isRefused =
        (error instanceof JetStreamApiError && error.code === tooLarge) ||
        error instanceof errors.InvalidArgumentError;
      if (isRefused) return new BusError("refused", error.message);
      throw error;
    }
  }

  return {
    async publish(messages) {
      const current = connection();
      if (!current) throw new BusError("disconnected", "the bus cannot be reached");
      try {
        await ready(current);
        const client = jetstream(current, { timeout: mirrorAnswerMs });
        const most = current.info?.max_payload ?? Number.POSITIVE_INFINITY;
        // The messages leave in this order; their answers may arrive in another.
        const answers = await Promise.allSettled(messages.map((one) => publishOne(client, most, one)));
        return answers.map((answer) => {
          if (answer.status === "rejected") throw answer.reason;
          return answer.value;
        });
      } catch (error) {
        // A server that lost its data has no stream any more: the next call makes the stream again.
        opened = undefined;
        throw error instanceof BusError
          ? error
          : new BusError(
              "disconnected",
              `the bus keeps nothing: ${error instanceof Error ? error.message : error}`,
            );
      }
    },
  };
}
