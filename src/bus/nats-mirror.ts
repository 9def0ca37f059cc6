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
import { mirrorAnswerMs, mirrorKeptMs, mirrorRepeatMs } from "../kit/limits.ts";
import type { Log } from "../kit/log.ts";
import { BusError, type Mirror, type Mirrored } from "./bus.ts";
import { isSubject } from "./subject.ts";

export interface NatsMirrorOptions {
  /** Undefined while the server cannot be reached. */
  connection: () => NatsConnection | undefined;
  /** In front of every subject: `svc.mirror.`. */
  prefix: string;
  /** `svc_mirror`: letters, digits, `_` and `-`. */
  stream: string;
  log: Log;
}

/**
 * The answer of JetStream to a message that is larger than the stream takes, and to a question for a stream
 * that is not there.
 */
const tooLarge = 10_054;
const noStream = 10_059;
/** What the protocol adds around headers of ours. */
const headBytes = 64;

const nanos = (ms: number) => ms * 1_000_000;
const encoder = new TextEncoder();

/** A stream of JetStream. One that somebody made before, with limits of their own, is used as it is. */
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
    // A cluster that has not three servers now is waited for: fewer copies would stay fewer.
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
        // Sent in this order; the answers may come in any.
        const answers = await Promise.allSettled(messages.map((one) => publishOne(client, most, one)));
        return answers.map((answer) => {
          if (answer.status === "rejected") throw answer.reason;
          return answer.value;
        });
      } catch (error) {
        // Also a wiped server, which knows the stream no more: the next call makes it again.
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
